"""A wait is cancelled whenever it is told so: also at the very moment in which there is news."""

import asyncio

import pytest

from drumbeat.store.sql.queue import Subscription, _rang


@pytest.mark.parametrize("turns", range(5))
async def test_a_wait_that_is_cancelled_as_it_is_rung_is_cancelled(turns: int) -> None:
    ear = Subscription(asyncio.Event(), live=True)
    waiting = asyncio.get_running_loop().create_task(_rang(ear, 60))
    for _ in range(3):
        await asyncio.sleep(0)

    ear.heard.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    told = waiting.cancel()

    if told:
        with pytest.raises(asyncio.CancelledError):
            await waiting
    else:
        assert await waiting


async def test_a_wait_ends_when_it_is_rung_or_in_time() -> None:
    ear = Subscription(asyncio.Event(), live=True)

    assert not await _rang(ear, 0.01)
    ear.heard.set()
    assert await _rang(ear, 60)
