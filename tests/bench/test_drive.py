"""Driving from one process: what it waits for before it begins."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.bench.drive import DriveSettings, Watcher, drive, opened
from drumbeat.bench.driver.runner import Interval
from drumbeat.bench.prepare import prepare
from drumbeat.bench.standard import standard
from drumbeat.bench.targets.open import open_target
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
    def held(self) -> int:
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
        opening = group.create_task(opened(runner, wanted, clock, Watcher(**known)))
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
    assert notes == [f"{why}; going on with those"]


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

    def look(interval: Interval) -> None:
        if interval.phase == Phase.MEASUREMENT:
            stop.set()

    settings = DriveSettings(connections=2, warmup=timedelta(seconds=0.1), duration=timedelta(hours=1))
    async with asyncio.timeout(60), open_target(f"sqlite:///{tmp_path}/t.db") as target:
        await prepare(target, load)
        result = await drive(target, load.load, settings, SystemClock(), Watcher(on_interval=look, stop=stop))

    assert result.tally.operations > 0
    assert 0 < result.seconds < 60
