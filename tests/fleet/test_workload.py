"""The metronome ticks as it is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.run import Phase
from drumbeat.fleet.workload import PERIOD, Metronome
from drumbeat.runtime.worker import DrainResult, WorkloadFigures
from fleet.given import seconds

NO_RAMP = timedelta()


class SlowClock(ManualClock):
    """A machine that comes back late from every sleep."""

    late = timedelta(milliseconds=3)

    async def sleep(self, duration: timedelta) -> None:
        await super().sleep(duration + self.late)


@asynccontextmanager
async def ticking(metronome: Metronome) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(metronome.ended())
        await asyncio.sleep(0)
        yield
        task.cancel()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def metronome(clock: ManualClock) -> Metronome:
    return Metronome(clock)


async def test_each_ticker_is_due_ten_times_a_second(clock: ManualClock, metronome: Metronome) -> None:
    await metronome.prepare()
    await metronome.start(None, 3)
    async with ticking(metronome):
        await clock.advance(seconds(2))

    measured = metronome.measure()

    assert timedelta(milliseconds=100) == PERIOD
    assert measured is not None
    assert (measured.operations, measured.latency.count, measured.errors) == (60, 60, 0)
    assert metronome.figures == WorkloadFigures(active=3, applied_target=3, operations=60)
    await metronome.close()


async def test_what_was_measured_is_counted_once(clock: ManualClock, metronome: Metronome) -> None:
    await metronome.start(None, 1)
    counts = []
    async with ticking(metronome):
        for _ in range(3):
            await clock.advance(seconds(1))
            measured = metronome.measure()
            assert measured is not None
            counts.append((measured.operations, measured.latency.count))

    assert counts == [(10, 10), (10, 10), (10, 10)]
    assert metronome.figures.operations == 30


async def test_lateness_is_what_is_measured() -> None:
    clock = SlowClock()
    metronome = Metronome(clock)
    await metronome.start(None, 2)
    async with ticking(metronome):
        await clock.advance(seconds(1))

    measured = metronome.measure()

    assert measured is not None
    assert measured.latency.least is not None
    assert measured.latency.least >= 3_000_000


async def test_a_tick_that_comes_late_delays_no_later_one() -> None:
    clock = SlowClock()
    metronome = Metronome(clock)
    await metronome.start(None, 1)
    async with ticking(metronome):
        await clock.advance(seconds(10) + SlowClock.late)

    measured = metronome.measure()

    assert measured is not None
    assert measured.operations == 100
    assert measured.latency.greatest == 3_000_000


@pytest.mark.parametrize(
    ("begin", "end", "held"),
    [(0, 10, [0, 2, 5, 7, 10, 10]), (10, 2, [10, 8, 6, 4, 2, 2]), (4, 4, [4] * 6)],
    ids=["up", "down", "level"],
)
async def test_a_ramp_goes_in_even_steps(
    clock: ManualClock, metronome: Metronome, begin: int, end: int, held: list[int]
) -> None:
    await metronome.start(None, begin)
    metronome.set_target(end, seconds(4))

    seen = []
    for _ in held:
        seen.append(metronome.figures.active)
        await clock.advance(seconds(1))

    assert seen == held


async def test_a_new_target_begins_where_the_ramp_had_got_to(clock: ManualClock, metronome: Metronome) -> None:
    await metronome.start(None, 0)
    metronome.set_target(10, seconds(10))
    await clock.advance(seconds(5))
    metronome.set_target(0, seconds(5))

    assert metronome.figures.applied_target == 5
    await clock.advance(seconds(1))
    assert metronome.figures.applied_target == 4


async def test_a_target_without_a_ramp_holds_at_once(metronome: Metronome) -> None:
    await metronome.start(None, 2)
    metronome.set_target(5, NO_RAMP)

    assert metronome.figures == WorkloadFigures(active=5, applied_target=5, operations=0)


@pytest.mark.parametrize("before", [None, Phase.WARMUP])
async def test_totals_begin_anew_at_measurement(clock: ManualClock, metronome: Metronome, before: Phase | None) -> None:
    await metronome.start(before, 1)
    async with ticking(metronome):
        await clock.advance(seconds(3))
        metronome.set_phase(Phase.MEASUREMENT)
        reset = metronome.figures.operations
        await clock.advance(seconds(1))
        metronome.set_phase(Phase.MEASUREMENT)
        metronome.set_phase(Phase.COOLDOWN)
        metronome.set_phase(Phase.MEASUREMENT)

    assert (reset, metronome.figures.operations) == (0, 10)


async def test_one_that_starts_in_measurement_counts_from_its_start(clock: ManualClock, metronome: Metronome) -> None:
    await metronome.start(Phase.MEASUREMENT, 1)
    async with ticking(metronome):
        await clock.advance(seconds(1))
        metronome.set_phase(Phase.MEASUREMENT)

    assert metronome.figures.operations == 10


async def test_a_reset_of_the_totals_loses_no_measurement(clock: ManualClock, metronome: Metronome) -> None:
    await metronome.start(Phase.WARMUP, 1)
    async with ticking(metronome):
        await clock.advance(seconds(1))
        metronome.set_phase(Phase.MEASUREMENT)

    measured = metronome.measure()

    assert measured is not None
    assert measured.operations == 10


async def test_a_drained_metronome_holds_nothing(metronome: Metronome) -> None:
    await metronome.start(None, 5)

    assert await metronome.drain(seconds(10)) == DrainResult()
    assert (metronome.figures.active, metronome.figures.applied_target) == (0, 0)
