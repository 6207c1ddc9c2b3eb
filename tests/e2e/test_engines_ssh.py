"""A pool, a fleet and a benchmark on two hosts over real SSH, by the ordinary commands only."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.given import Said, drumbeat, eventually, ran
from servers.openssh import OpenSshServer
from spawn.ssh.conftest import sshd as sshd

ENGINES = """
[engines.cluster]
kind = "ssh"
key_file = "{key}"
known_hosts = "{known}"
ssh_agent = false
python = "{python}"
connect_timeout = "2m"
timeout = "2m"
{hosts}
"""
HOST = """
[[engines.cluster.hosts]]
name = "{name}"
address = "127.0.0.1"
port = {port}
user = "{user}"
slots = 3
price_per_hour = 0.1
folder = "{folder}/{name}"
"""
TEMPLATE = """
name: quick
target: {{url: "{url}"}}
workload: {{standard: tpcb, scale: 0.01}}
timing: {{warmup_seconds: 0, duration_seconds: 1}}
concurrent_connections: 2
scaling: {{mode: FIXED, min_workers: 2, min_connections: 1}}
"""


class Site:
    """A folder with engines.toml, and the store that its commands use."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.store = folder, store

    def run(self, *words: str) -> Said:
        done = ran(*words, cwd=self.folder, DRUMBEAT_STORE=self.store)
        assert done.code == 0, (words, done.output, done.errors)
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").output)

    @property
    def running(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.json("engine", "workers", "cluster")["workers"]
        return found


@pytest.fixture
def site(tmp_path: Path, sshd: OpenSshServer, postgres_url: str) -> Site:
    hosts = "".join(HOST.format(name=name, port=sshd.port, user=sshd.user, folder=tmp_path) for name in ("node1", "node2"))
    text = ENGINES.format(key=sshd.key_file, known=sshd.known_hosts, python=sys.executable, hosts=hosts)
    (tmp_path / "engines.toml").write_text(text)
    return Site(tmp_path, postgres_url)


def test_an_ssh_engine_passes_its_check(site: Site) -> None:
    found = site.json("engine", "check", "cluster", "--timeout", "3m")

    assert found["ok"], found
    assert site.json("pools", "list") == []
    assert site.running == []


def test_a_burst_of_jobs_is_done_over_ssh(site: Site) -> None:
    site.run("pool", "create", "jobs", "--handler", "command:cat", "--max-workers", "2", "--engine", "cluster,local")
    for n in range(4):
        site.run("pool", "push", "jobs", json.dumps({"n": n}))

    site.run("pool", "check", "jobs")

    eventually(lambda: site.json("pool", "status", "jobs")["jobs"]["done"] == 4, "all jobs are done")
    assert {each["meta"]["engine"] for each in site.json("workers", "list", "jobs")} == {"cluster"}
    eventually(lambda: site.running == [], "the workers leave by themselves")


def test_a_fleet_grows_and_shrinks_over_ssh(site: Site) -> None:
    site.run("fleet", "create", "f", "--policy", "fixed", "--set", "workers=2", "--engine", "cluster")
    site.run("fleet", "beat", "f")
    eventually(lambda: _statuses(site) == ["active", "active"], "both workers are active")

    assert sorted(each["worker_id"] for each in site.running) == ["worker-0", "worker-1"]
    assert {each["price_per_hour"] for each in site.running} == {0.1}
    site.run("engine", "logs", "cluster", "f", "worker-0")
    for name in ("worker-0", "worker-1"):
        site.run("fleet", "kill", "f", name)
    assert site.running == []


def _statuses(site: Site) -> list[str]:
    return [each["status"] for each in site.json("workers", "list", "f")]


def test_a_benchmark_runs_over_ssh(site: Site, new_database: Any) -> None:
    target = new_database()
    (site.folder / "quick.yml").write_text(TEMPLATE.format(url=target))
    site.run("bench", "prepare", target, "--workload", "tpcb", "--scale", "0.01")

    done = drumbeat("bench", "run", "quick.yml", "--engine", "cluster", "--json", cwd=site.folder, DRUMBEAT_STORE=site.store)

    assert done.code == 0, done.errors
    workers = site.json("workers", "list", json.loads(done.output)["run"]["run_id"])
    assert [each["provider"] for each in workers] == ["cluster", "cluster"]
    assert site.running == []
