"""bench drive: what is asked for is checked before anything is opened, and what came of it is told."""

from pathlib import Path
from typing import Any

import pytest

from cli.given import invoke, ran
from drumbeat.bench.driver.tally import latency_figures
from drumbeat.bench.model import DriveOutcome
from drumbeat.composition import offline
from drumbeat.core.errors import InvalidInput, StoreUnavailable
from drumbeat.core.histogram import Histogram


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--seed -1", "--seed"),
        ("--timeout 1e300", "--timeout"),
        ("--timeout nan", "--timeout"),
        ("--rate inf", "--rate"),
        ("--rate nan", "--rate"),
        ("--duration 1e300", "--duration"),
        ("--duration nan", "--duration"),
        ("--warmup 1e300", "--warmup"),
        ("--scale inf", "--scale"),
        ("--scale nan", "--scale"),
    ],
)
def test_an_option_that_cannot_be_is_named(tmp_path: Path, words: str, named: str) -> None:
    said = ran("bench", "drive", f"sqlite:///{tmp_path}/t.db", *words.split(), cwd=tmp_path)

    assert said.code == 1
    assert named in said.errors
    assert "Traceback" not in said.errors
    assert said.errors.startswith("drumbeat: ")


def test_a_port_that_cannot_be_is_said(tmp_path: Path) -> None:
    said = ran("bench", "drive", "postgresql://localhost:99999/x", cwd=tmp_path)

    assert (said.code, said.output) == (1, "")
    assert "expected a port from 1 to 65535" in said.errors


@pytest.mark.parametrize(("error", "code"), [(InvalidInput("only 0 of 8 came"), 1), (StoreUnavailable("it is away"), 2)])
def test_an_error_of_tasks_that_ran_together_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, code: int
) -> None:
    async def drive(*_: object) -> DriveOutcome:
        raise ExceptionGroup("unhandled errors in a TaskGroup", [ExceptionGroup("within", [error])])

    monkeypatch.setattr(offline, "drive", drive)
    said = ran("bench", "drive", "sqlite:///t.db", cwd=tmp_path)

    assert (said.code, said.output, said.errors) == (code, "", f"drumbeat: {error}\n")


def driven(monkeypatch: pytest.MonkeyPatch, **known: Any) -> tuple[int, str]:
    """How the command ends, and what it says, where a load came to this."""
    told = {"throughput": 10.0, "seconds": 1.0, "connections": 80, "held": 80, "operations": 10, "errors": 0, "kinds": {}}
    told |= {"response": latency_figures(Histogram()), "client_cpu_us_per_op": None, **known}

    async def drive(*_: object) -> DriveOutcome:
        return DriveOutcome(figures=told, warnings=())

    monkeypatch.setattr(offline, "drive", drive)
    said = invoke("bench", "drive", "sqlite:///t.db")
    return said.code, said.output


def test_the_headline_says_how_many_connections_were_held(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "over 1.0 s on 59 of 80 connections:" in driven(monkeypatch, held=59)[1]
    assert "over 1.0 s on 80 connections:" in driven(monkeypatch)[1]


@pytest.mark.parametrize(("operations", "errors", "code"), [(10, 0, 0), (10, 9, 0), (10, 10, 3), (0, 0, 3)])
def test_a_load_in_which_nothing_went_well_is_no_success(
    monkeypatch: pytest.MonkeyPatch, operations: int, errors: int, code: int
) -> None:
    assert driven(monkeypatch, operations=operations, errors=errors)[0] == code


def test_a_folder_with_a_recording_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.db").touch()
    (tmp_path / "rec").mkdir()
    (tmp_path / "rec" / "00000.parquet").touch()

    said = ran("bench", "drive", f"sqlite:///{tmp_path}/t.db", "--record", "rec", cwd=tmp_path)

    assert said.code == 1
    assert "--record: expected a folder without a recording, got 'rec', which holds an earlier one" in said.errors
