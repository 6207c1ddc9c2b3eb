"""In-loop triggers: the caller never waits, and what comes meanwhile is seen by one more beat."""

import asyncio

from drumbeat.triggers.in_loop import in_loop
from triggers.given import Beats, trigger

BESIDE = trigger("beside", "in-loop")


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_caller_goes_on_while_the_beat_runs() -> None:
    beats = Beats(holds=asyncio.Event())

    async with in_loop(beats) as beside:
        beside.fire(BESIDE, "papers")
        await settle()
        assert (len(beats.asked), beats.running) == (1, 1)
        assert beats.holds is not None
        beats.holds.set()

    assert beats.running == 0
    assert beats.asked[0].pool_id == "papers"


async def test_many_pushes_during_a_beat_are_one_more_beat() -> None:
    beats = Beats(holds=asyncio.Event())

    async with in_loop(beats) as beside:
        beside.fire(BESIDE, "papers")
        await settle()
        for _ in range(50):
            beside.fire(BESIDE, "papers")
        assert beats.holds is not None
        beats.holds.set()

    assert len(beats.asked) == 2
    assert beats.most_at_once == 1


async def test_pools_do_not_wait_for_each_other() -> None:
    beats = Beats(holds=asyncio.Event())

    async with in_loop(beats) as beside:
        for pool_id in ("a", "b"):
            beside.fire(BESIDE, pool_id)
        await settle()
        assert beats.running == 2
        assert beats.holds is not None
        beats.holds.set()


async def test_a_beat_that_fails_hurts_nobody_and_the_next_is_made() -> None:
    beats = Beats(fails=[ValueError("odd")])

    async with in_loop(beats) as beside:
        beside.fire(BESIDE, "papers")
        await settle()
        beside.fire(BESIDE, "papers")

    assert len(beats.asked) == 2
