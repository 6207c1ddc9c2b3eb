"""The commands of triggers, and the cloud's handler, as they are called."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.given import COMMAND, Said, drumbeat, environment
from drumbeat.adapters.aws_lambda import handler
from triggers.given import SECRET

FILE = """
triggers:
  - {name: often, type: cron, schedule: "*/5 * * * *", input: {pool_id: papers, max_workers: 0}}
  - {name: hook, type: webhook, secret_variable: HOOK}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a store, the pool papers and two triggers."""
    (tmp_path / "triggers.yml").write_text(FILE)
    (tmp_path / "drumbeat.toml").write_text(f'store = "sqlite:///{tmp_path}/d.db"\n')
    assert drumbeat("pool", "create", "papers", cwd=tmp_path).code == 0
    return tmp_path


def trigger(folder: Path, *words: str, **variables: str) -> Said:
    return drumbeat("trigger", *words, cwd=folder, **variables)


def test_triggers_are_listed(folder: Path) -> None:
    said = trigger(folder, "list", "--json")

    assert [(each["name"], each["type"]) for each in json.loads(said.output)] == [("often", "cron"), ("hook", "webhook")]
    assert "*/5 * * * *" in trigger(folder, "list").output


def test_a_check_finds_what_is_missing_and_exits_1(folder: Path) -> None:
    missing, whole = trigger(folder, "check"), trigger(folder, "check", "--json", HOOK=SECRET)

    assert (missing.code, whole.code) == (1, 0)
    assert "environment variable HOOK, got none" in missing.output
    assert json.loads(whole.output) == {"triggers": 2, "problems": []}


def test_a_wrong_key_is_named_in_one_line(folder: Path) -> None:
    (folder / "triggers.yml").write_text(FILE.replace("schedule", "shedule"))

    said = trigger(folder, "list")

    assert said.code == 1
    assert "shedule: there is no such key" in said.errors
    assert len(said.errors.splitlines()) == 1


def test_a_check_says_what_is_wrong_with_the_file(folder: Path) -> None:
    (folder / "triggers.yml").write_text(FILE.replace("schedule", "shedule"))

    said = trigger(folder, "check")

    assert said.code == 1
    assert "triggers[0] (often): schedule: this key is required, shedule: there is no such key" in said.errors


def test_a_trigger_is_fired(folder: Path) -> None:
    said = trigger(folder, "fire", "often")

    assert said.code == 0
    assert "did nothing: no job is ready" in said.output


def test_a_trigger_that_beats_a_fleet_says_what_the_beat_did(folder: Path) -> None:
    (folder / "triggers.yml").write_text(
        "triggers: [{name: scale, type: cron, schedule: '* * * * *', machine: fleet_beat, input: {pool_id: gpus}}]"
    )
    assert drumbeat("fleet", "create", "gpus", "--policy", "fixed", "--set", "workers=0", cwd=folder).code == 0

    said, as_json = trigger(folder, "fire", "scale"), trigger(folder, "fire", "scale", "--json")

    assert (said.code, said.errors) == (0, "")
    assert said.output.splitlines() == [
        "gpus: wanted 0, queued_tasks 0, spawning_workers 0, active_workers 0, terminating_workers 0, total_workers 0",
        "  did nothing: 0 of 0 workers are here and all are healthy",
    ]
    assert (as_json.code, json.loads(as_json.output)["gpus"]["ok"]) == (0, True)


def test_a_trigger_whose_fleet_beat_fails_exits_1(folder: Path) -> None:
    (folder / "triggers.yml").write_text("triggers: [{name: scale, type: cron, schedule: '* * * * *', machine: fleet_beat}]")
    engines = folder / "engines.toml"
    engines.write_text('[engines.here]\nkind = "local"\n')
    assert drumbeat("fleet", "create", "gpus", "--policy", "fixed", "--engine", "here", cwd=folder).code == 0
    engines.unlink()

    said = trigger(folder, "fire", "scale")

    assert said.code == 1
    assert "  failed: " in said.output
    assert "Traceback" not in said.errors


@pytest.fixture
def crontab(folder: Path) -> Path:
    """Where the fake command crontab in ``bin`` keeps its lines."""
    kept, fake = folder / "kept", folder / "bin" / "crontab"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\n[ "$1" = -l ] && exec cat {kept}\ncat > {kept}\n')
    fake.chmod(0o755)
    kept.write_text("0 3 * * * mine\n")
    return kept


def with_crontab(crontab: Path) -> str:
    return f"{crontab.parent}/bin:{os.environ['PATH']}"


def test_lines_are_installed_and_removed_through_the_crontab_command(folder: Path, crontab: Path) -> None:
    installed = trigger(folder, "install", PATH=with_crontab(crontab))
    lines = crontab.read_text().splitlines()
    removed = trigger(folder, "remove", PATH=with_crontab(crontab))

    assert (installed.code, removed.code) == (0, 0)
    assert "installed: 1" in installed.output
    assert (lines[0], lines[1].startswith("*/5 * * * * cd ")) == ("0 3 * * * mine", True)
    assert crontab.read_text() == "0 3 * * * mine\n"
    ran = subprocess.run(["sh", "-c", lines[1].removeprefix("*/5 * * * * ")], env=environment(), check=False)
    assert ran.returncode == 0
    assert "no job is ready" in (folder / ".drumbeat" / "triggers" / "cron.log").read_text()


@pytest.mark.parametrize("name", ["triggers.yml", "trigger_registry.yml"])
@pytest.mark.parametrize("left", [None, "triggers: ["])
def test_lines_of_a_file_that_is_gone_or_invalid_are_removed_without_a_store(
    folder: Path, crontab: Path, name: str, left: str | None
) -> None:
    file = (folder / "triggers.yml").rename(folder / name)
    assert trigger(folder, "install", PATH=with_crontab(crontab)).code == 0
    file.unlink()
    if left is not None:
        file.write_text(left)
    (folder / "d.db").unlink()

    removed = trigger(folder, "remove", PATH=with_crontab(crontab))

    assert (removed.code, removed.output.strip()) == (0, "removed: 1")
    assert crontab.read_text() == "0 3 * * * mine\n"


def test_a_manifest_is_printed(folder: Path) -> None:
    said = trigger(folder, "manifest", "often", "--image", "drumbeat:1", "--secret-name", "stores")

    assert said.code == 0
    assert "kind: CronJob" in said.output


def test_serving_ends_with_a_signal(folder: Path) -> None:
    command = [*COMMAND, "trigger", "serve", "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, env=environment(HOOK=SECRET), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("listening on http://127.0.0.1:")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def in_the_cloud(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOOK", SECRET)
    monkeypatch.setenv("DRUMBEAT_STORE", f"sqlite:///{folder}/d.db")
    return iter(())


class Context:
    def get_remaining_time_in_millis(self) -> int:
        return 60_000


@pytest.mark.parametrize("context", [None, Context()])
def test_a_clouds_event_runs_the_beat(in_the_cloud: None, context: Any) -> None:
    answer = handler({"detail": {"pool_id": "papers", "max_workers": 0}}, context)

    assert answer["beats"]["papers"]["why_not"] == "no job is ready"


def test_a_clouds_unsigned_request_is_refused(in_the_cloud: None) -> None:
    answer = handler({"rawPath": "/triggers/hook", "headers": {}, "body": "{}", "requestContext": {}}, None)

    assert answer["statusCode"] == 401


def test_the_short_way_runs_the_same_beat(folder: Path) -> None:
    firing = {"trigger": "t", "machine": "parallelization_checker", "pool_id": "papers", "max_workers": 0, "lost_after": None}
    command = [sys.executable, "-m", "drumbeat.cli.fire"]

    done = subprocess.run(
        [*command, json.dumps(firing)], cwd=folder, env=environment(), capture_output=True, text=True, check=True
    )
    failed = subprocess.run(
        [*command, json.dumps(firing | {"pool_id": "nobody"})],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert json.loads(done.stdout)["papers"]["led"] is True
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "nobody" in failed.stderr
