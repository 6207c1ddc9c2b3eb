"""The demos, with real processes: each tells its story, gives its reasons and leaves nothing behind."""

import json
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.given import PATIENCE, Said, drumbeat, eventually, processes_of, ran, started, workers_of
from drumbeat.cli.demo import say_where

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="drumbeat-test-demo-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def told(folder: Path) -> Said:
    """What the demo said, from beginning to end."""
    return drumbeat("demo", "fleet", cwd=folder, TMPDIR=str(folder))


def decisions(told: Said) -> list[str]:
    _, _, listed = told.output.partition("What the controller decided, and why\n")
    return [line.split("  ", 2)[2] for line in listed.partition("\n\n")[0].splitlines()]


def test_the_demo_ends_well(told: Said) -> None:
    assert told.code == 0, told
    assert told.errors == ""


def test_the_demo_tells_its_story(told: Said) -> None:
    story = [line for line in told.output.splitlines() if line.startswith("• ")]

    assert [re.sub(r"\d+", "N", line) for line in story] == [
        "• the controller starts N workers; each is in the store before its process starts",
        "• all workers are active; their target is raised from N to N over N seconds",
        "• kill -N of worker-N (pid N)",
        "• the controller replaced it with worker-N; now all workers drain",
        "• all workers have exited; no process is left",
    ]


def test_the_demo_gives_the_reasons_of_its_decisions(told: Said) -> None:
    said = decisions(told)

    assert [line for line in said if line.startswith("Spawn ")] == [
        "Spawn worker-0: 0 of 3 workers are here; slot 0 is free",
        "Spawn worker-1: 0 of 3 workers are here; slot 1 is free",
        "Spawn worker-2: 0 of 3 workers are here; slot 2 is free",
        "Spawn worker-3: 2 of 3 workers are here; slot 2 is free",
    ]
    assert "MarkFailed worker-2: its instance ended: killed by signal 9" in said
    assert sum(line.startswith("SetTarget ") for line in said) == 7
    assert [line for line in said if line.startswith("AskToDrain ")] == [
        f"AskToDrain worker-{n}: 3 workers are here, 0 are wanted" for n in (0, 1, 3)
    ]
    assert sum(line.startswith("Reap ") for line in said) == 4
    assert not any("not done" in line for line in said)


def test_the_demo_says_how_often_nothing_was_to_be_done(told: Said) -> None:
    assert re.search(r"^\d+ beats; in \d+ of them nothing had to be done \(.+\)\.$", told.output, re.MULTILINE)


def hinted_store(said: Said) -> str:
    """The store that the demo says to open in the dashboard."""
    found = re.search(r"^  drumbeat serve --store (\S+)$", said.output, re.MULTILINE)
    assert found is not None, said
    return found[1]


def test_the_demo_leaves_no_process_and_keeps_its_store_for_the_dashboard(told: Said, folder: Path) -> None:
    assert told.code == 0
    assert processes_of(folder) == []
    assert [(each.name, each.stat().st_mode & 0o777) for each in folder.iterdir()] == [("drumbeat-demo", 0o700)]
    page = re.search(r"^  then http://127.0.0.1:8321/fleet/(\S+)$", told.output, re.MULTILINE)
    assert page is not None
    assert hinted_store(told) == f"sqlite:///{folder}/drumbeat-demo/drumbeat.db"
    assert page[1] in ran("pools", "list", "--store", hinted_store(told), cwd=folder).output


def test_the_demo_can_use_another_store(tmp_path: Path, postgres_url: str) -> None:
    said = drumbeat("demo", "fleet", "--workers", "1", "--store", postgres_url, cwd=tmp_path, TMPDIR=str(tmp_path))

    assert said.code == 0, said
    assert "Spawn worker-1: 0 of 1 workers are here; slot 0 is free" in decisions(said)
    kept = ran("pools", "list", cwd=tmp_path, DRUMBEAT_STORE=postgres_url).output
    assert re.search(r"^demo-\w+ +fleet", kept, re.MULTILINE)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_demo_takes_its_workers_along(tmp_path: Path, number: signal.Signals) -> None:
    with started("demo", "fleet", cwd=tmp_path, TMPDIR=str(tmp_path)) as demo:
        eventually(lambda: len(workers_of(demo.pid)) == 3, "three workers")
        demo.send_signal(number)
        _, errors = demo.communicate(timeout=PATIENCE)

    assert demo.returncode == (130 if number is signal.SIGINT else -signal.SIGKILL)
    assert errors == ""
    eventually(lambda: processes_of(tmp_path) == [], "no worker left")


def test_the_bench_demo_finds_a_knee_and_leaves_a_report(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()

    with started("demo", cwd=tmp_path, TMPDIR=str(inside)) as process:
        output, errors = process.communicate(timeout=200)
    said = Said(process.returncode, output, errors)

    assert said.code == 0, said
    assert said.errors == ""
    assert "COMPLETED (MAX_FOUND)" in said.output
    assert re.search(r"^ *\d+ █+.*◀ highest stable level$", said.output, re.MULTILINE)
    assert "<svg" in (tmp_path / "drumbeat-demo.html").read_text(encoding="utf-8")
    assert processes_of(tmp_path) == []
    assert list(inside.iterdir()) == []
    run_id = re.search(r"^  then http://127.0.0.1:8321/runs/(\S+)$", said.output, re.MULTILINE)
    assert run_id is not None
    kept = ran("bench", "list", "--store", hinted_store(said), "--json", cwd=tmp_path)
    assert [(each["run_id"], each["status"]) for each in json.loads(kept.output)] == [(run_id[1], "COMPLETED")]


def test_a_password_of_the_store_is_not_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    say_where("postgresql://me:secret@localhost/db", "/runs/run-1", tmp_path)

    assert "secret" not in capsys.readouterr().out


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    said = ran("demo", "fleet", "--folder", "file", cwd=tmp_path)

    assert (said.code, said.output) == (1, "")
    assert "cannot create the demo folder" in said.errors
    assert "--folder" in said.errors
