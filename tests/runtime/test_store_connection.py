"""The line is tried again, ever less often, and given up in time."""

import asyncio

import pytest

from drumbeat.core.errors import Refused, StoreUnavailable
from drumbeat.core.pool import PRESETS, PoolKind, Thresholds
from drumbeat.runtime.store_connection import StoreConnection
from runtime.given import BENCH, World, seconds, settle


async def answer(world: World) -> str:
    await world.store.now()
    return "here"


async def insist(world: World, line: StoreConnection, tries: list[float]) -> str:
    async def attempt() -> str:
        tries.append(world.clock.elapsed().total_seconds())
        return await answer(world)

    try:
        return await line.ask_until_answered(attempt)
    except StoreUnavailable:
        return "given up"


async def test_pauses_double_to_thirty_seconds_and_the_last_try_is_at_the_deadline(world: World) -> None:
    line, tries = StoreConnection(world.clock, BENCH), list[float]()
    async with asyncio.TaskGroup() as group:
        with world.store.unavailable():
            outcome = group.create_task(insist(world, line, tries))
            await world.passes(44.9)
            assert not outcome.done()
            await world.passes(0.1)
    assert outcome.result() == "given up"
    assert tries == [0, 1, 3, 7, 15, 31, 45]


async def test_a_pause_is_never_longer_than_thirty_seconds(world: World) -> None:
    line, tries = StoreConnection(world.clock, PRESETS[PoolKind.FLEET]), list[float]()
    async with asyncio.TaskGroup() as group:
        with world.store.unavailable():
            group.create_task(insist(world, line, tries))
            await world.passes(240)
    assert tries == [0, 1, 3, 7, 15, 31, 61, 91, 121, 151, 181, 211, 240]


async def test_pauses_begin_anew_after_an_answer(world: World) -> None:
    line = StoreConnection(world.clock, BENCH)
    pauses = []
    for _ in range(2):
        with world.store.unavailable():
            for _ in range(3):
                with pytest.raises(StoreUnavailable):
                    await line.ask(answer(world))
                pauses.append(line.retry_in)
                await world.passes(line.retry_in.total_seconds())
        assert await line.ask(answer(world)) == "here"
        assert not line.retry_in
    assert pauses == [seconds(s) for s in (1, 2, 4, 1, 2, 4)]


async def test_contact_counts_from_the_answer_that_ended_the_silence(world: World) -> None:
    line = StoreConnection(world.clock, BENCH)
    await world.passes(20)
    await line.ask(answer(world))
    assert line.in_contact == seconds(20)
    with world.store.unavailable(), pytest.raises(StoreUnavailable):
        await line.ask(answer(world))
    assert line.in_contact == seconds(0)
    await world.passes(5)
    await line.ask(answer(world))
    await world.passes(7)
    assert line.in_contact == seconds(7)


async def test_silence_counts_from_before_the_last_answered_call(world: World) -> None:
    line = StoreConnection(world.clock, BENCH)

    async def slow() -> None:
        await world.clock.sleep(seconds(4))

    async with asyncio.TaskGroup() as group:
        group.create_task(line.ask(slow()))
        await settle()
        await world.passes(4)
    assert line.silence == seconds(4)


async def test_a_refusal_is_an_answer(world: World) -> None:
    line = StoreConnection(world.clock, BENCH)

    async def refuse() -> None:
        raise Refused("no")

    with pytest.raises(Refused):
        await line.ask(refuse())
    assert not line.retry_in


@pytest.mark.parametrize(
    ("thresholds", "moment"),
    [(BENCH, 5), (PRESETS[PoolKind.JOBS], 10 / 3), (PRESETS[PoolKind.FLEET], 10)],
)
def test_three_moments_fit_between_giving_up_and_being_called_lost(world: World, thresholds: Thresholds, moment: float) -> None:
    line = StoreConnection(world.clock, thresholds)
    assert line.call_timeout == seconds(moment)
    assert thresholds.give_up_after + 3 * line.call_timeout <= thresholds.lost_after
