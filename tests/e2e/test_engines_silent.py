"""Commands at an engine whose host takes connections and never answers: they say what they wait for, and end on Ctrl-C."""

import json
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.given import PATIENCE, eventually, ran, started

ENGINES = """
[engines.mute]
kind = "ssh"
ssh_agent = false
verify_host_keys = false
connect_timeout = "2s"

[[engines.mute.hosts]]
name = "node1"
address = "127.0.0.1"
port = {port}
slots = 2
"""
TEMPLATE = """
name: quick
target: {{url: "sqlite:///{folder}/target.db"}}
workload: {{standard: tpcb, scale: 0.01}}
scaling: {{mode: FIXED, min_workers: 2, min_connections: 1, engine: mute}}
"""


class Site:
    """A folder with the engine, and the store that its commands use."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.variables = folder, {"DRUMBEAT_STORE": store}

    def run(self, *words: str) -> None:
        done = ran(*words, cwd=self.folder, **self.variables)
        assert done.code == 0, (words, done.output, done.errors)

    def interrupted(self, word: str, *command: str) -> tuple[int, str]:
        """Run a command, interrupt it once it has said the word, and return how it ended and what it said."""
        with started(*command, cwd=self.folder, **self.variables) as process:
            before = _until(process, word)
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=PATIENCE)
        return process.returncode, before + output + errors


def _until(process: subprocess.Popen[str], word: str) -> str:
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if word in line:
            return said
    raise AssertionError(f"expected {word!r} in what it says, got {said!r} {process.stderr.read() if process.stderr else ''}")


@pytest.fixture
def site(tmp_path: Path, postgres_url: str) -> Iterator[Site]:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        (tmp_path / "engines.toml").write_text(ENGINES.format(port=mute.getsockname()[1]))
        yield Site(tmp_path, postgres_url)


def test_a_benchmark_says_what_it_waits_for_and_ends_on_ctrl_c(site: Site) -> None:
    (site.folder / "quick.yml").write_text(TEMPLATE.format(folder=site.folder))
    site.run("bench", "prepare", f"sqlite:///{site.folder}/target.db", "--workload", "tpcb", "--scale", "0.01")

    code, said = site.interrupted("waiting for 2 workers: engine mute does not answer", "bench", "run", "quick.yml")

    assert code == 3, said
    assert "CANCELLED (USER)" in said
    assert "may still run" not in said, "nothing was sent to the host, so nothing can have been started there"
    run_id = re.findall(r"run-[0-9a-f]{12}", said)[0]
    table = ran("workers", "list", run_id, cwd=site.folder, **site.variables).output
    assert [word in table for word in ("not started", "mute", "healthy")] == [True, True, False]


def test_a_plan_for_more_workers_than_the_engine_has_slots_is_refused(site: Site) -> None:
    (site.folder / "quick.yml").write_text(TEMPLATE.format(folder=site.folder).replace("min_workers: 2", "min_workers: 3"))
    site.run("bench", "prepare", f"sqlite:///{site.folder}/target.db", "--workload", "tpcb", "--scale", "0.01")

    planned = ran("bench", "plan", "quick.yml", cwd=site.folder, **site.variables)
    tried = ran("bench", "run", "quick.yml", cwd=site.folder, **site.variables)

    assert (planned.code, tried.code) == (1, 1)
    assert "the run needs 3 workers, but engine mute has 2 slots" in planned.output
    assert "the run needs 3 workers, but engine mute has 2 slots" in tried.errors
    assert json.loads(ran("runs", "list", "--json", cwd=site.folder, **site.variables).output) == []


def test_a_fleets_daemon_ends_on_ctrl_c_though_its_engine_is_silent(site: Site) -> None:
    site.run("fleet", "create", "f", "--policy", "fixed", "--set", "workers=1", "--engine", "mute")

    code, said = site.interrupted('"led":true', "fleet", "run", "f", "--every", "1s")

    assert code == 0, said
    assert "may still run" not in said, "nothing was sent to the host, so nothing can have been started there"


def test_a_worker_of_a_pool_ends_on_ctrl_c(site: Site) -> None:
    site.run("pool", "create", "jobs", "--handler", "command:cat", "--engine", "mute")
    for n in range(2):
        site.run("pool", "push", "jobs", json.dumps({"n": n}))

    with started("pool", "work", "jobs", cwd=site.folder, **site.variables) as process:
        _wait_done(site)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)

    assert (process.returncode, "2 attempts ended" in errors) == (0, True), errors


def _wait_done(site: Site) -> None:
    def done() -> int:
        return int(
            json.loads(ran("pool", "status", "jobs", "--json", cwd=site.folder, **site.variables).output)["jobs"]["done"]
        )

    eventually(lambda: done() == 2, "both jobs are done")
