"""Driving from one process: what it waits for before it begins."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from drumbeat.bench.driver.runner import DriverInterval
from drumbeat.bench.model import Load, Operation, Statement
from drumbeat.bench.targets.open import open_target
from drumbeat.bench.worker.drive import (
    DriveResult,
    DriveSettings,
    Watcher,
    check_recording,
    drive,
    held_on_average,
    wait_for_connections,
)
from drumbeat.bench.workloads.prepare import prepare
from drumbeat.bench.workloads.standard import standard
from drumbeat.core.clock import ManualClock, SystemClock
from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import Phase


@dataclass
class FakeError:
    message: str


@dataclass
class FakeEngine:
    """Holds as many connections as its function says."""

    holds: Callable[[], int]
    error_samples: list[FakeError] = field(default_factory=list)

    @property
    def open_connections(self) -> int:
        return self.holds()


@dataclass
class FakeRunner:
    engine: FakeEngine


async def waited(holds: Callable[[float], int], wanted: int = 310, said: str = "", **known: Any) -> tuple[float, str | None]:
    """How long it waited for connections, and what it said then."""
    clock = ManualClock()
    began = clock.elapsed()
    errors = [FakeError(said)] if said else []
    runner: Any = FakeRunner(FakeEngine(lambda: holds((clock.elapsed() - began).total_seconds()), errors))
    async with asyncio.TaskGroup() as group:
        opening = group.create_task(wait_for_connections(runner, wanted, clock, Watcher(**known)))
        while not opening.done():
            await clock.advance(timedelta(milliseconds=100))
    return (clock.elapsed() - began).total_seconds(), opening.result()


async def test_it_goes_on_as_soon_as_every_connection_is_open() -> None:
    seconds, why = await waited(lambda passed: int(passed * 100))

    assert seconds == pytest.approx(3.1, abs=0.2)
    assert why is None


async def test_it_goes_on_with_those_it_has_when_no_more_came_for_15_seconds_and_says_so() -> None:
    notes: list[str] = []

    seconds, why = await waited(lambda passed: min(int(passed * 100), 297), said="too many clients", on_note=notes.append)

    assert 17 < seconds < 19
    assert why == "only 297 of 310 connections could be opened; the database said: too many clients"
    assert notes == [f"{why}; continuing with these connections"]


async def test_it_waits_no_longer_than_until_it_is_stopped() -> None:
    stop = asyncio.Event()
    stop.set()

    seconds, why = await waited(lambda passed: 0, stop=stop)

    assert seconds < 1
    assert why is None


async def test_a_slow_database_is_waited_for_as_long_as_connections_come() -> None:
    seconds, why = await waited(lambda passed: int(passed / 10), wanted=20)

    assert seconds == pytest.approx(200, abs=1)
    assert why is None


async def test_without_any_connection_nothing_is_driven() -> None:
    with pytest.raises(ExceptionGroup) as refused:
        await waited(lambda passed: 0, said="go away")

    assert refused.group_contains(InvalidInput, match="only 0 of 310 connections could be opened; the database said: go away")


async def test_a_load_that_is_stopped_before_its_time_says_what_was_measured_so_far(tmp_path: Path) -> None:
    load = standard("read-only", 0.001)
    stop = asyncio.Event()

    def look(interval: DriverInterval) -> None:
        if interval.phase == Phase.MEASUREMENT:
            stop.set()

    settings = DriveSettings(connections=2, warmup=timedelta(seconds=0.1), duration=timedelta(hours=1))
    async with asyncio.timeout(60), open_target(f"sqlite:///{tmp_path}/t.db") as target:
        await prepare(target, load)
        result = await drive(target, load.load, settings, SystemClock(), Watcher(on_interval=look, stop=stop))

    assert result.tally.operations > 0
    assert 0 < result.seconds < 60


OVERFLOWS = Operation(kind="BAD", weight=100, statements=(Statement(sql="SELECT abs(-9223372036854775808)"),), reads=True)
BRIEF = DriveSettings(connections=2, warmup=timedelta(), duration=timedelta(seconds=0.3))


async def driven(tmp_path: Path, settings: DriveSettings, *operations: Operation) -> DriveResult:
    """A short load of a small table, or of these operations."""
    small = standard("read-only", 0.001)
    async with asyncio.timeout(60), open_target(f"sqlite:///{tmp_path}/t.db") as target:
        await prepare(target, small)
        load = Load(name="odd", operations=operations) if operations else small.load
        return await drive(target, load, settings, SystemClock())


async def test_operations_that_were_due_and_never_sent_are_told(tmp_path: Path) -> None:
    result = await driven(tmp_path, replace(BRIEF, rate=1_000_000))

    told = result.to_json()
    assert told["skipped"] > 100_000
    assert any("operations were due but never sent before the end" in warning for warning in told["warnings"])
    assert told["response"]["min_ms"] >= told["service"]["min_ms"] > 0


async def test_a_load_that_fails_as_a_whole_says_which_error_and_measured_no_latency(tmp_path: Path) -> None:
    result = await driven(tmp_path, replace(BRIEF, rate=10_000_000), OVERFLOWS)

    told = result.to_json()
    assert told["errors"] == told["operations"] > 0
    assert "integer overflow" in told["warnings"][0]
    assert told["most_frequent_error"]["message"] == "integer overflow"
    assert told["response"]["min_ms"] is None
    assert told["kinds"]["BAD"]["min_ms"] is None


async def test_how_many_connections_were_held_is_told_beside_how_many_were_asked_for(tmp_path: Path) -> None:
    told = (await driven(tmp_path, BRIEF)).to_json()

    assert (told["held"], told["connections"]) == (2, 2)


def test_what_was_held_is_the_measured_intervals_average() -> None:
    intervals: list[Any] = [SimpleNamespace(held=60), SimpleNamespace(held=58)]

    assert (held_on_average(intervals), held_on_average([])) == (59, 0)


async def test_a_recording_never_overwrites_an_earlier_one(tmp_path: Path) -> None:
    folder = tmp_path / "rec"
    await driven(tmp_path, replace(BRIEF, executions=folder))
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}

    with pytest.raises(InvalidInput, match=r"an earlier one \(00000\.parquet …\); name another folder"):
        await driven(tmp_path, replace(BRIEF, executions=folder))

    assert {path.name: path.read_bytes() for path in folder.iterdir()} == kept


def test_a_recording_needs_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(InvalidInput, match="expected a folder, got the file"):
        check_recording(tmp_path / "file")
    check_recording(tmp_path)
