"""Waiting always ends, and whoever waits learns how."""

import asyncio
from datetime import timedelta

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import Refused, StoreUnavailable
from drumbeat.runtime.timeouts import LostRace, describe, next_due, pause, race, truncate, with_timeout
from runtime.given import seconds, settle


async def after(clock: ManualClock, delay: float, value: str = "done", error: Exception | None = None) -> str:
    await clock.sleep(seconds(delay))
    if error is not None:
        raise error
    return value


async def test_work_that_is_first_gives_its_value() -> None:
    clock = ManualClock()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(race(clock.sleep(seconds(2)), after(clock, 1)))
        await clock.advance(seconds(1))
    assert task.result() == "done"


async def test_work_that_fails_first_raises_its_own_error() -> None:
    clock = ManualClock()
    with pytest.raises(Refused, match="no"):
        await race(clock.sleep(seconds(2)), after(clock, 0, error=Refused("no")))


async def test_work_that_is_overtaken_is_cancelled() -> None:
    cancelled: list[bool] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    with pytest.raises(LostRace):
        await race(asyncio.sleep(0), endless())
    assert cancelled == [True]


async def test_cancelling_the_race_cancels_both() -> None:
    clock = ManualClock()
    never = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(race(never.wait(), after(clock, 1)))
        await settle()
        task.cancel()
    assert task.cancelled()


async def test_no_answer_in_time_is_a_store_that_is_unavailable() -> None:
    clock = ManualClock()
    async with asyncio.TaskGroup() as group:
        race = group.create_task(_caught(with_timeout(clock, seconds(5), after(clock, 60))))
        await clock.advance(seconds(5))
        await settle()
        assert race.done()
    assert isinstance(race.result(), StoreUnavailable)


async def _caught(work: object) -> Exception | None:
    try:
        await work  # type: ignore[misc]
    except Exception as exc:
        return exc
    return None


@pytest.mark.parametrize(("waits", "set_after", "expected"), [(5, 2, True), (2, 5, False), (0, 5, False)])
async def test_a_pause_ends_with_its_event_or_its_time(waits: float, set_after: float, expected: bool) -> None:
    clock, until = ManualClock(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(pause(clock, seconds(waits), until))
        group.create_task(_set_after(clock, set_after, until))
        await clock.advance(seconds(min(waits, set_after)))
        await settle()
        assert waiting.done()
        await clock.advance(seconds(10))
    assert waiting.result() is expected


async def _set_after(clock: ManualClock, delay: float, event: asyncio.Event) -> None:
    await clock.sleep(seconds(delay))
    event.set()


@pytest.mark.parametrize(
    ("due", "now", "expected"),
    [
        (0, 0.0, 1),
        (0, 0.9, 1),
        (0, 1.0, 2),
        (0, 7.5, 8),
        (3, 2.0, 4),
    ],
)
def test_a_schedule_neither_drifts_nor_makes_up_for_what_it_missed(due: float, now: float, expected: float) -> None:
    assert next_due(seconds(due), timedelta(seconds=1), seconds(now)) == seconds(expected)


@pytest.mark.parametrize(
    ("text", "longest", "expected"),
    [
        ("short", 5, "short"),
        ("longer", 5, "longe...(truncated)"),
        ("nul\0here", 50, "nul\\0here"),
        ("half \ud800 a pair", 50, "half \\ud800 a pair"),
    ],
)
def test_text_is_cut_to_what_a_database_takes(text: str, longest: int, expected: str) -> None:
    assert truncate(text, longest) == expected


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (Refused("no"), "no"),
        (KeyError("x"), "KeyError: 'x'"),
        (ExceptionGroup("unhandled errors in a TaskGroup", [Refused("no keys are left")]), "no keys are left"),
    ],
)
def test_an_error_is_told_in_one_line(exc: Exception, expected: str) -> None:
    assert describe(exc) == expected
