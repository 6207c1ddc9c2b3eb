"""A wait is cancelled whenever it is told so: also at the very moment in which there is news."""

import asyncio

import pytest

from drumbeat.store.sql.queue import FUTILE_PAUSE, Subscription, _backed_off, _notified


@pytest.mark.parametrize("turns", range(5))
async def test_a_wait_that_is_cancelled_as_it_is_rung_is_cancelled(turns: int) -> None:
    subscription = Subscription(asyncio.Event(), live=True)
    waiting = asyncio.get_running_loop().create_task(_notified(subscription, 60))
    for _ in range(3):
        await asyncio.sleep(0)

    subscription.notified.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    told = waiting.cancel()

    if told:
        with pytest.raises(asyncio.CancelledError):
            await waiting
    else:
        assert await waiting


async def test_a_wait_ends_when_it_is_rung_or_in_time() -> None:
    subscription = Subscription(asyncio.Event(), live=True)

    assert not await _notified(subscription, 0.01)
    subscription.notified.set()
    assert await _notified(subscription, 60)


@pytest.mark.parametrize(("times", "seconds"), [(0, 0.0), (1, 0.05), (2, 0.1), (7, 3.2), (8, 5.0), (100_000, 5.0)])
def test_the_pause_of_a_queue_whose_ready_jobs_cannot_be_claimed_stays_within_its_bounds(times: int, seconds: float) -> None:
    assert _backed_off(FUTILE_PAUSE, times) == pytest.approx(seconds)
