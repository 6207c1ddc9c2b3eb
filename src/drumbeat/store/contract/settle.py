"""Tests of settling jobs: a worker reports how its claimed jobs ended."""

import pytest

from drumbeat.core.job import AttemptOutcome, JobId, JobOutcome, JobStatus, Token
from drumbeat.core.pool import PoolRow
from drumbeat.core.worker import Holder
from drumbeat.store.contract.given import (
    AWKWARD,
    MINUTE,
    W1,
    W2,
    Elapse,
    Given,
    new_pool,
    unique,
)
from drumbeat.store.contract.given_jobs import claimed, claiming, failed, holder, pushed, verdict
from drumbeat.store.interface import Store


class SettleContract(Given):
    """Tests of settling jobs, that is, of reporting how they ended."""

    async def test_done_keeps_the_result(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)

        settled = await store.queue.settle(holder(pool), [verdict(job, result=dict(AWKWARD))])

        done = await store.jobs.get(job.job_id)
        assert settled.stale == ()
        assert (done.status, done.result, done.attempts, done.failures) == (JobStatus.DONE, AWKWARD, 1, 0)
        assert (done.lease_owner, done.lease_until) == (W1, None)
        assert done.finished_at is not None

    async def test_settling_claims_more_jobs_in_the_same_call(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, *range(5))
        first = await store.queue.claim(claiming(pool, limit=2))

        settled = await store.queue.settle(holder(pool), [verdict(job) for job in first], claiming(pool, limit=2))

        assert [job.payload for job in settled.claimed] == [2, 3]
        assert {(await store.jobs.get(job.job_id)).status for job in first} == {JobStatus.DONE}

    async def test_settling_nothing_is_a_claim(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)

        assert [job.payload for job in (await store.queue.settle(holder(pool), [], claiming(pool))).claimed] == [1]

    async def test_a_failure_is_tried_again_after_its_wait(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await pushed(store, pool, 1)
        job = await failed(store, pool, retry_in=10 * MINUTE)

        assert (job.status, job.failures, job.last_error, job.lease_owner) == (JobStatus.PENDING, 1, "no luck", None)
        assert await store.queue.claim(claiming(pool)) == []
        await elapse(11 * MINUTE)
        again = await claimed(store, pool)
        assert (again.attempts, again.lease_epoch) == (2, 2)

    async def test_a_job_is_poisoned_when_its_failures_reach_its_limit(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, max_attempts=2)

        assert (await failed(store, pool)).status is JobStatus.PENDING
        job = await claimed(store, pool)
        await store.queue.settle(holder(pool), [verdict(job, AttemptOutcome.TIMED_OUT, error="too long")])

        poisoned = await store.jobs.get(job.job_id)
        assert (poisoned.status, poisoned.failures, poisoned.last_error) == (JobStatus.POISONED, 2, "too long")
        assert await store.queue.claim(claiming(pool)) == []

    async def test_a_fatal_failure_poisons_at_once(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, max_attempts=5)

        assert (await failed(store, pool, fatal=True)).status is JobStatus.POISONED

    async def test_a_released_job_costs_nothing(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)

        await store.queue.settle(holder(pool), [verdict(job, AttemptOutcome.RELEASED)])

        again = await claimed(store, pool, W2)
        assert (again.attempts, again.failures, again.crashes, again.lease_epoch) == (1, 0, 0, 2)

    async def test_a_cancelled_verdict_ends_the_job(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)

        await store.queue.settle(holder(pool), [verdict(job, AttemptOutcome.CANCELLED)])

        assert (await store.jobs.get(job.job_id)).status is JobStatus.CANCELLED

    async def test_every_outcome_may_come_in_one_settlement(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, *range(5))
        jobs = await store.queue.claim(claiming(pool, limit=5))
        outcomes = [
            AttemptOutcome.DONE,
            AttemptOutcome.FAILED,
            AttemptOutcome.TIMED_OUT,
            AttemptOutcome.RELEASED,
            AttemptOutcome.CANCELLED,
        ]

        settled = await store.queue.settle(
            holder(pool), [verdict(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]
        )

        now = [await store.jobs.get(job.job_id) for job in jobs]
        assert settled.stale == ()
        assert [job.status for job in now] == ["done", "pending", "pending", "pending", "cancelled"]
        assert [job.failures for job in now] == [0, 1, 1, 0, 0]

    @pytest.mark.parametrize("outcome", [*AttemptOutcome])
    async def test_an_outcome_from_a_former_holder_is_stale_and_changes_nothing(
        self, store: Store, pool: PoolRow, outcome: AttemptOutcome
    ) -> None:
        await pushed(store, pool, 1)
        late = await claimed(store, pool, W1)
        await store.queue.release(holder(pool), "silent")
        held = await claimed(store, pool, W2)

        settled = await store.queue.settle(holder(pool), [verdict(late, outcome, result="late")])

        assert settled.stale == (late.token,)
        assert await store.jobs.get(held.job_id) == held

    async def test_a_token_is_good_for_its_own_worker_and_epoch_only(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)
        wrong = [
            (W2, job.token),
            (W1, Token(job_id=job.job_id, epoch=2)),
            (W1, Token(job_id=JobId("j000000000000"), epoch=1)),
            (W1, Token(job_id=JobId(unique("none")), epoch=1)),
        ]

        for worker_id, token in wrong:
            settled = await store.queue.settle(holder(pool, worker_id), [JobOutcome(token=token, outcome=AttemptOutcome.DONE)])
            assert settled.stale == (token,)

        assert await store.jobs.get(job.job_id) == job

    @pytest.mark.parametrize("claims_more", [False, True], ids=["settling", "settling and claiming"])
    @pytest.mark.parametrize("outcome", [*AttemptOutcome])
    async def test_an_outcome_is_accepted_from_the_current_holder_only(
        self, store: Store, pool: PoolRow, outcome: AttemptOutcome, claims_more: bool
    ) -> None:
        """A report is refused if its worker, process, pool or claim differs from the holder's, or if the job has ended."""
        await pushed(store, pool, 1)
        me = holder(pool, W1, "i1")
        job = await claimed(store, pool, me)
        elsewhere = holder(await store.pools.create(new_pool()), W1, "i1")

        async def is_accepted(who: Holder, epoch: int) -> bool:
            wrong = JobOutcome(token=Token(job_id=job.job_id, epoch=epoch), outcome=outcome, result="wrong", error="wrong")
            settled = await store.queue.settle(who, [wrong], claiming(pool, who) if claims_more else None)
            assert settled.claimed == ()
            return settled.stale != (wrong.token,)

        for who in (holder(pool, W2, "i1"), holder(pool, W1, "i2"), elsewhere):
            assert not await is_accepted(who, job.lease_epoch)
        for epoch in (job.lease_epoch - 1, job.lease_epoch + 1):
            assert not await is_accepted(me, epoch)
        assert await store.jobs.get(job.job_id) == job

        await store.queue.settle(me, [verdict(job, result="right")])
        done = await store.jobs.get(job.job_id)
        assert not await is_accepted(me, job.lease_epoch)
        assert await store.jobs.get(job.job_id) == done

    async def test_a_second_outcome_for_the_same_claim_is_stale(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)

        settled = await store.queue.settle(holder(pool), [verdict(job, result=1), verdict(job, result=2)])
        again = await store.queue.settle(holder(pool), [verdict(job, AttemptOutcome.FAILED)])

        assert (settled.stale, again.stale) == ((job.token,), (job.token,))
        assert (await store.jobs.get(job.job_id)).result == 1

    async def test_stale_and_good_verdicts_are_told_apart(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, 2, 3)
        jobs = await store.queue.claim(claiming(pool, limit=3))
        await store.queue.settle(holder(pool), [verdict(jobs[1])])

        settled = await store.queue.settle(holder(pool), [verdict(job) for job in jobs])

        assert settled.stale == (jobs[1].token,)
