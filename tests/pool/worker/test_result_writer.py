"""What becomes of outcomes that the store refuses, loses or no longer wants, while they are written one by one."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.job import AttemptOutcome, Job, JobOutcome, JobStatus
from drumbeat.pool.worker.claims import Claims
from drumbeat.pool.worker.result_writer import ResultWriter
from drumbeat.store.interface import ClaimRequest, Queue, SettleResult
from pool.working import POOL, Shop, me, seconds

BAD = "a result that the store refuses"


class PickyQueue:
    """The queue of a store that refuses one result, and fails before or after it has written a certain job."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.fails_before: str | None = None
        self.fails_after: str | None = None

    async def claim(self, claiming: ClaimRequest) -> Sequence[Job]:
        return await self._queue.claim(claiming)

    async def settle(self, holder: Any, verdicts: Sequence[JobOutcome], claiming: Any = None) -> SettleResult:
        ids = [verdict.token.job_id for verdict in verdicts]
        if len(ids) == 1 and ids[0] == self.fails_before:
            raise StoreUnavailable("down before the write")
        if any(verdict.result == BAD for verdict in verdicts):
            raise ValueError("cannot store this result")
        settled = await self._queue.settle(holder, verdicts, claiming)
        if len(ids) == 1 and ids[0] == self.fails_after:
            raise StoreUnavailable("down after the write")
        return settled


@pytest.fixture
def queue(shop: Shop) -> PickyQueue:
    return PickyQueue(shop.store.queue)


@pytest.fixture
def writer(shop: Shop, queue: PickyQueue) -> ResultWriter:
    store = shop.store
    return ResultWriter(
        Claims(
            queue=cast(Queue, queue),
            jobs=store.jobs,
            steps=store.job_steps,
            workers=store.workers,
            leases=store.leases,
            pool_id=POOL,
            holder=me(),
            lease=seconds(60),
        )
    )


async def claimed(shop: Shop, writer: ResultWriter, count: int = 3) -> Sequence[Job]:
    await shop.desk.push_many(range(count))
    return (await writer.settle([], count)).claimed


def done(job: Job, result: Any = "good") -> JobOutcome:
    return JobOutcome(token=job.token, outcome=AttemptOutcome.DONE, result=result)


@pytest.mark.parametrize("moment", ["fails_before", "fails_after"])
async def test_outcomes_written_before_the_store_failed_are_not_taken_for_late_ones(
    shop: Shop, queue: PickyQueue, writer: ResultWriter, caplog: pytest.LogCaptureFixture, moment: str
) -> None:
    first, second, third = await claimed(shop, writer)
    verdicts = [done(first), done(second), done(third, BAD)]
    setattr(queue, moment, second.job_id)
    with pytest.raises(StoreUnavailable):
        await writer.settle(verdicts, 1)
    setattr(queue, moment, None)

    written = await writer.settle(verdicts, 1)

    assert [await shop.status(job.job_id) for job in (first, second, third)] == [
        JobStatus.DONE,
        JobStatus.DONE,
        JobStatus.POISONED,
    ]
    assert (written.dropped, [failure.token for failure in written.refused]) == ((), [third.token])
    assert "came too late" not in caplog.text


async def test_an_outcome_that_was_not_written_yet_when_the_store_failed_can_come_too_late(
    shop: Shop, queue: PickyQueue, writer: ResultWriter
) -> None:
    first, second, third = await claimed(shop, writer)
    verdicts = [done(first, BAD), done(second), done(third)]
    queue.fails_before = second.job_id
    with pytest.raises(StoreUnavailable):
        await writer.settle(verdicts, 0)
    queue.fails_before = None
    await shop.store.queue.release(me(), "somebody thought the worker lost")

    written = await writer.settle(verdicts, 0)

    assert [verdict.token for verdict in written.dropped] == [third.token]


async def test_late_outcomes_found_while_writing_one_by_one_are_dropped_and_not_counted_twice(
    shop: Shop, writer: ResultWriter
) -> None:
    refused, late, late_and_refused = await claimed(shop, writer)
    await shop.store.queue.release(me(), "somebody thought the worker lost")
    [again] = (await writer.settle([], 1, alone=True)).claimed

    written = await writer.settle([done(again, BAD), done(late), done(late_and_refused, BAD)], 0)

    assert again.job_id == refused.job_id
    assert [verdict.token for verdict in written.dropped] == [late.token, late_and_refused.token]
    assert {verdict.outcome for verdict in written.dropped} == {AttemptOutcome.DONE}
    assert [failure.token for failure in written.refused] == [again.token]
