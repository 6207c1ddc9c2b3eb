"""Clocks: the machine's, and the one that tests move."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from drumbeat.core.clock import Clock, ManualClock, SystemClock

SECOND = timedelta(seconds=1)
START = datetime(2026, 1, 1, tzinfo=UTC)


async def test_manual_time_stands_still_until_it_is_moved() -> None:
    clock = ManualClock()
    assert (clock.now(), clock.elapsed()) == (START, timedelta())

    await clock.advance(90 * SECOND)

    assert (clock.now(), clock.elapsed()) == (START + 90 * SECOND, 90 * SECOND)


async def test_manual_time_starts_where_it_is_told_to() -> None:
    start = datetime(1999, 12, 31, tzinfo=UTC)

    assert ManualClock(start).now() == start


async def test_a_sleeper_wakes_at_its_moment_and_not_before() -> None:
    clock = ManualClock()
    woke: list[datetime] = []

    async def sleeper() -> None:
        await clock.sleep(10 * SECOND)
        woke.append(clock.now())

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(sleeper())
        await clock.advance(9 * SECOND)
        assert woke == []
        await clock.advance(9 * SECOND)

    assert woke == [START + 10 * SECOND]
    assert clock.now() == START + 18 * SECOND


async def test_sleepers_wake_in_the_order_of_their_moments() -> None:
    clock = ManualClock()
    woke: list[tuple[str, timedelta]] = []

    async def sleeper(name: str, seconds: int) -> None:
        await clock.sleep(seconds * SECOND)
        woke.append((name, clock.elapsed()))

    async with asyncio.TaskGroup() as tasks:
        for name, seconds in [("c", 3), ("a", 1), ("b", 2), ("a too", 1)]:
            tasks.create_task(sleeper(name, seconds))
        await clock.advance(5 * SECOND)

    assert woke == [("a", SECOND), ("a too", SECOND), ("b", 2 * SECOND), ("c", 3 * SECOND)]


async def test_who_sleeps_again_on_waking_is_woken_again_in_the_same_advance() -> None:
    clock = ManualClock()
    ticks: list[timedelta] = []

    async def ticker() -> None:
        for _ in range(5):
            await clock.sleep(SECOND)
            ticks.append(clock.elapsed())

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ticker())
        await clock.advance(3 * SECOND)
        assert ticks == [SECOND, 2 * SECOND, 3 * SECOND]
        await clock.advance(2 * SECOND)

    assert ticks[3:] == [4 * SECOND, 5 * SECOND]


async def test_who_is_cancelled_asleep_stops_nobody_else() -> None:
    clock = ManualClock()
    woke: list[str] = []

    async def sleeper(name: str) -> None:
        await clock.sleep(SECOND)
        woke.append(name)

    async with asyncio.TaskGroup() as tasks:
        cancelled = tasks.create_task(sleeper("cancelled"))
        tasks.create_task(sleeper("other"))
        await asyncio.sleep(0)
        cancelled.cancel()
        await clock.advance(SECOND)

    assert woke == ["other"]


@pytest.mark.parametrize("clock", [ManualClock(), SystemClock()])
@pytest.mark.parametrize("duration", [timedelta(), -SECOND])
async def test_no_time_at_all_is_slept_at_once(clock: Clock, duration: timedelta) -> None:
    before = clock.now()

    async with asyncio.timeout(30):
        await clock.sleep(duration)

    assert clock.now() >= before


async def test_no_time_at_all_still_lets_others_run() -> None:
    clock = ManualClock()
    seen: list[str] = []

    async def other() -> None:
        seen.append("other")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(other())
        await clock.sleep(timedelta())
        seen.append("sleeper")

    assert seen == ["other", "sleeper"]


async def test_the_machines_time_is_aware_and_goes_on() -> None:
    clock = SystemClock()
    now, elapsed = clock.now(), clock.elapsed()

    await clock.sleep(timedelta(milliseconds=1))

    assert now.utcoffset() == timedelta()
    assert clock.elapsed() > elapsed
