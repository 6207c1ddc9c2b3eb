"""Tests of reading, counting, cancelling, requeueing and pruning jobs."""

from datetime import timedelta

import pytest

from drumbeat.core.errors import NotFound
from drumbeat.core.job import AttemptOutcome, JobCounts, JobId, JobStatus, NewJob
from drumbeat.core.pool import PoolRow
from drumbeat.core.worker import WorkerId
from drumbeat.store.contract.counting import CountsContract
from drumbeat.store.contract.demand import DemandContract
from drumbeat.store.contract.given import DAY, MINUTE, W1, W2, Elapse, new_pool, unique
from drumbeat.store.contract.given_jobs import claimed, claiming, failed, holder, pushed, verdict
from drumbeat.store.contract.job_changes import JobChangesContract
from drumbeat.store.interface import Due, Store


class JobsContract(CountsContract, DemandContract, JobChangesContract):
    @pytest.mark.parametrize("job_id", ["j999999999999", "nobody-pushed"])
    async def test_an_unknown_job_is_not_found(self, store: Store, job_id: str) -> None:
        with pytest.raises(NotFound, match=job_id):
            await store.jobs.get(JobId(job_id))
        with pytest.raises(NotFound, match=job_id):
            await store.jobs.attempts(JobId(job_id))

    async def test_jobs_are_listed_in_the_order_of_their_pushing(self, store: Store, pool: PoolRow) -> None:
        ids = [*await pushed(store, pool, 1, 2), *await pushed(store, pool, 3, priority=9, delay=MINUTE)]

        jobs = await store.jobs.list(pool.pool_id)

        assert [job.job_id for job in jobs] == ids
        assert [job.payload for job in await store.jobs.list(pool.pool_id, after=ids[0], limit=1)] == [2]
        assert [job.payload for job in await store.jobs.list(pool.pool_id, after=ids[1])] == [3]

    async def test_jobs_are_not_listed_after_a_job_of_another_pool(self, store: Store, pool: PoolRow) -> None:
        other = await store.pools.create(new_pool())
        [elsewhere] = await pushed(store, other, 0)
        [named] = await store.queue.push(other.pool_id, [NewJob(payload=0, job_id=JobId(unique("named")))])
        await pushed(store, pool, 1)

        for after in (elsewhere, named, JobId("j999999999999")):
            with pytest.raises(NotFound, match=after):
                await store.jobs.list(pool.pool_id, after=after)

    async def test_jobs_are_listed_by_what_they_are(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, type="x")
        await pushed(store, pool, 2, type="y", group="g")
        await pushed(store, pool, 3, type="y")
        await claimed(store, pool)

        async def listed(**filters: object) -> list[object]:
            return [job.payload for job in await store.jobs.list(pool.pool_id, **filters)]  # type: ignore[arg-type]

        assert await listed(job_type="y") == [2, 3]
        assert await listed(group="g") == [2]
        assert await listed(worker_id=W1) == [1]
        assert await listed(statuses=[JobStatus.PENDING, JobStatus.PENDING]) == [2, 3]
        assert await listed(statuses=[JobStatus.CLAIMED, JobStatus.DONE]) == [1]
        assert await listed(statuses=[JobStatus.DONE]) == []

    async def test_a_pool_that_is_not_there_has_no_jobs(self, store: Store) -> None:
        nowhere = new_pool().pool_id

        assert [*await store.jobs.list(nowhere)] == []
        assert (await store.jobs.size(nowhere), await store.jobs.counts(nowhere)) == (0, JobCounts())
        assert dict(await store.jobs.demand(nowhere)) == {}

    async def test_every_attempt_is_kept_with_its_outcome(self, store: Store, pool: PoolRow) -> None:
        name = WorkerId(unique("w"))
        [job_id] = await pushed(store, pool, 1, max_attempts=9)
        await failed(store, pool)
        for outcome in (AttemptOutcome.TIMED_OUT, AttemptOutcome.RELEASED):
            await store.queue.settle(
                holder(pool, W2), [verdict(await claimed(store, pool, W2), outcome, error=f"it {outcome}")]
            )
        await claimed(store, pool, name)
        await store.queue.release(holder(pool, name), "silent")
        await store.queue.settle(holder(pool), [verdict(await claimed(store, pool))])

        attempts = await store.jobs.attempts(job_id)

        assert [attempt.outcome for attempt in attempts] == ["failed", "timed_out", "released", "crashed", "done"]
        assert [attempt.worker_id for attempt in attempts] == [W1, W2, W2, name, W1]
        assert [attempt.error for attempt in attempts] == ["no luck", "it timed_out", "it released", "silent", None]
        assert [attempt.n for attempt in attempts] == [1, 2, 3, 4, 5]
        assert all(attempt.ended_at is not None and attempt.started_at <= attempt.ended_at for attempt in attempts)

    async def test_a_running_attempt_has_no_end_yet(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)

        [attempt] = await store.jobs.attempts(job.job_id)

        assert (attempt.worker_id, attempt.ended_at, attempt.outcome) == (W1, None, None)
        assert attempt.started_at == job.claimed_at

    @pytest.mark.parametrize(
        ("outcome", "status"), [(AttemptOutcome.FAILED, JobStatus.POISONED), (AttemptOutcome.CANCELLED, JobStatus.CANCELLED)]
    )
    async def test_the_attempt_that_ended_a_job_badly_is_kept(
        self, store: Store, pool: PoolRow, outcome: AttemptOutcome, status: JobStatus
    ) -> None:
        await pushed(store, pool, 1, max_attempts=1)
        job = await claimed(store, pool)
        await store.queue.settle(holder(pool), [verdict(job, outcome, error="why")])

        [attempt] = await store.jobs.attempts(job.job_id)

        assert (await store.jobs.get(job.job_id)).status is status
        assert (attempt.outcome, attempt.error, attempt.worker_id) == (outcome, "why", W1)

    async def test_a_job_nobody_claimed_has_no_attempts(self, store: Store, pool: PoolRow) -> None:
        [job_id] = await pushed(store, pool, 1)
        await store.jobs.cancel([job_id])

        assert (await store.jobs.get(job_id)).status is JobStatus.CANCELLED
        assert [*await store.jobs.attempts(job_id)] == []

    async def test_the_size_counts_ready_jobs_up_to_the_most_asked_for(
        self, store: Store, pool: PoolRow, elapse: Elapse
    ) -> None:
        await pushed(store, pool, *range(5))
        await pushed(store, pool, "later", delay=10 * MINUTE)
        await claimed(store, pool)

        assert (await store.jobs.size(pool.pool_id), await store.jobs.size(pool.pool_id, most=3)) == (4, 3)
        await elapse(11 * MINUTE)
        assert await store.jobs.size(pool.pool_id) == 5

    async def test_counts_tell_how_a_queue_stands(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, "done", "poisoned", "cancelled", "claimed", max_attempts=1, priority=1)
        [oldest, *_] = await pushed(store, pool, 1, 2, 3)
        await pushed(store, pool, "later", delay=MINUTE)
        jobs = await store.queue.claim(claiming(pool, limit=4))
        outcomes = [AttemptOutcome.DONE, AttemptOutcome.FAILED, AttemptOutcome.CANCELLED]
        await store.queue.settle(holder(pool), [verdict(job, outcome) for job, outcome in zip(jobs, outcomes, strict=False)])

        counts = await store.jobs.counts(pool.pool_id)

        assert (counts.ready, counts.delayed, counts.pending, counts.claimed) == (3, 1, 4, 1)
        assert (counts.done, counts.poisoned, counts.cancelled) == (1, 1, 1)
        assert counts.oldest_ready == (await store.jobs.get(oldest)).created_at
        assert (await store.jobs.counts(pool.pool_id, most=2)).ready == 2

    async def test_a_pending_job_is_cancelled_at_once(self, store: Store, pool: PoolRow) -> None:
        ids = [*await pushed(store, pool, 1), *await pushed(store, pool, 2, delay=MINUTE)]

        cancelled = await store.jobs.cancel([*ids, JobId(unique("none"))])

        assert {job.job_id for job in cancelled} == set(ids)
        assert {job.status for job in cancelled} == {JobStatus.CANCELLED}
        assert await store.queue.claim(claiming(pool)) == []
        assert [*await store.jobs.cancel(ids)] == []

    @pytest.mark.parametrize("outcome", [AttemptOutcome.FAILED, AttemptOutcome.RELEASED, AttemptOutcome.CANCELLED])
    async def test_a_claimed_job_to_be_cancelled_is_not_tried_again(
        self, store: Store, pool: PoolRow, outcome: AttemptOutcome
    ) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)

        [marked] = await store.jobs.cancel([job.job_id])
        await store.queue.settle(holder(pool), [verdict(job, outcome)])

        assert (marked.status, marked.cancel_requested) == (JobStatus.CLAIMED, True)
        assert (await store.jobs.get(job.job_id)).status is JobStatus.CANCELLED

    async def test_a_worker_sees_what_it_is_to_stop_and_nobody_elses(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, 2)
        [named] = await store.queue.push(pool.pool_id, [NewJob(payload=3, job_id=JobId(unique("named")))])
        mine = await store.queue.claim(claiming(pool, W1, limit=2))
        [theirs] = await store.queue.claim(claiming(pool, W2))
        before = [await store.jobs.to_stop(holder(pool, worker)) for worker in (W1, W2)]

        await store.jobs.cancel([mine[1].job_id, theirs.job_id])

        assert [[*each] for each in before] == [[], []]
        assert theirs.job_id == named
        assert [*await store.jobs.to_stop(holder(pool))] == [mine[1].token]
        assert [*await store.jobs.to_stop(holder(pool, W2))] == [theirs.token]
        await store.queue.settle(holder(pool), [verdict(mine[1], AttemptOutcome.CANCELLED)])
        assert [*await store.jobs.to_stop(holder(pool))] == []

    async def test_a_claimed_job_to_be_cancelled_may_still_be_done(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)
        await store.jobs.cancel([job.job_id])

        await store.queue.settle(holder(pool), [verdict(job, result="in time")])

        assert (await store.jobs.get(job.job_id)).status is JobStatus.DONE

    async def test_requeued_jobs_start_over(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, max_attempts=1)
        poisoned = await failed(store, pool)
        [cancelled] = await pushed(store, pool, 2)
        await store.jobs.cancel([cancelled])

        requeued = await store.jobs.requeue(pool.pool_id, [cancelled, poisoned.job_id])
        again = await store.jobs.requeue(pool.pool_id, [cancelled, poisoned.job_id])

        assert ([*requeued], [*again]) == ([poisoned.job_id, cancelled], [])
        job = await store.jobs.get(poisoned.job_id)
        assert (job.status, job.failures, job.crashes, job.finished_at) == (JobStatus.PENDING, 0, 0, None)
        assert {job.payload for job in await store.queue.claim(claiming(pool, limit=9))} == {1, 2}

    async def test_how_long_until_a_job_comes_due(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        plain, able = claiming(pool), claiming(pool, types=("t",), capabilities=("gpu",))
        nothing = Due(is_ready=False, next_in=None)
        assert (await store.jobs.due(plain), await store.jobs.due(able)) == (nothing, nothing)
        await pushed(store, pool, *range(105), delay=10 * MINUTE)
        await pushed(store, pool, 1, delay=30 * MINUTE, type="t", capability="gpu")

        soon, later = (await store.jobs.due(plain)).wait, (await store.jobs.due(able)).wait

        assert soon is not None
        assert later is not None
        assert (9 * MINUTE < soon <= 10 * MINUTE, 29 * MINUTE < later <= 30 * MINUTE) == (True, True)
        await elapse(11 * MINUTE)
        assert await store.jobs.due(plain) == Due(is_ready=True, next_in=None)
        await store.queue.claim(claiming(pool, limit=105))
        assert await store.jobs.due(plain) == nothing
        await elapse(20 * MINUTE)
        assert (await store.jobs.due(able), await store.jobs.due(plain)) == (Due(is_ready=True, next_in=None), nothing)

    async def test_the_next_delayed_job_is_reported_even_if_another_is_ready(
        self, store: Store, pool: PoolRow, elapse: Elapse
    ) -> None:
        await pushed(store, pool, 1)
        await pushed(store, pool, 2, delay=10 * MINUTE)
        await pushed(store, pool, 3, delay=30 * MINUTE)

        first = await store.jobs.due(claiming(pool))
        await elapse(11 * MINUTE)
        second = await store.jobs.due(claiming(pool))

        assert (first.is_ready, second.is_ready) == (True, True)
        assert 9 * MINUTE < (first.next_in or 0 * MINUTE) <= 10 * MINUTE
        assert 18 * MINUTE < (second.next_in or 0 * MINUTE) <= 19 * MINUTE

    async def test_a_requeued_job_keeps_the_delay_it_was_pushed_with(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        later, failed_once = *await pushed(store, pool, 1, delay=10 * MINUTE), *await pushed(store, pool, 2)
        await failed(store, pool, retry_in=30 * MINUTE)
        due = (await store.jobs.get(later)).not_before
        await store.jobs.cancel([later, failed_once])

        assert {*await store.jobs.requeue(pool.pool_id, [later, failed_once])} == {later, failed_once}

        assert ((await store.jobs.get(later)).not_before, (await store.jobs.counts(pool.pool_id)).delayed) == (due, 1)
        assert (await claimed(store, pool)).job_id == failed_once
        assert [*await store.queue.claim(claiming(pool))] == []
        await elapse(11 * MINUTE)
        assert (await claimed(store, pool)).job_id == later

    async def test_jobs_of_other_pools_and_done_ones_are_not_requeued(self, store: Store, pool: PoolRow) -> None:
        other = await store.pools.create(new_pool())
        await pushed(store, pool, 1)
        await store.queue.settle(holder(pool), [verdict(await claimed(store, pool))])
        await pushed(store, other, 2, max_attempts=1)
        poisoned = await failed(store, other)
        [done] = await store.jobs.list(pool.pool_id)

        assert [*await store.jobs.requeue(pool.pool_id, [done.job_id, poisoned.job_id])] == []
        assert (await store.jobs.get(done.job_id)).status is JobStatus.DONE
        assert [*await store.jobs.requeue(other.pool_id, [done.job_id, poisoned.job_id])] == [poisoned.job_id]

    async def test_a_job_whose_key_another_has_now_is_not_requeued(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1, unique_key="k", max_attempts=1)
        poisoned = await failed(store, pool)
        await pushed(store, pool, 2, unique_key="k")

        assert [*await store.jobs.requeue(pool.pool_id, [poisoned.job_id])] == []
        assert (await store.jobs.get(poisoned.job_id)).status is JobStatus.POISONED

    async def test_of_two_poisoned_jobs_of_one_key_the_first_is_requeued(self, store: Store, pool: PoolRow) -> None:
        ids: list[JobId] = []
        for _ in range(2):
            ids += await pushed(store, pool, 1, unique_key="k", max_attempts=1)
            await failed(store, pool)

        assert [*await store.jobs.requeue(pool.pool_id, [*reversed(ids)])] == ids[:1]

    async def test_old_ended_jobs_are_pruned_and_no_others(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        await pushed(store, pool, "done", "poisoned", "cancelled", "claimed", "pending", max_attempts=1)
        jobs = await store.queue.claim(claiming(pool, limit=4, lease=9 * DAY))
        outcomes = [AttemptOutcome.DONE, AttemptOutcome.FAILED, AttemptOutcome.CANCELLED]
        await store.queue.settle(holder(pool), [verdict(job, outcome) for job, outcome in zip(jobs, outcomes, strict=False)])
        await elapse(2 * DAY)
        await store.jobs.prune(3 * DAY)
        assert len(await store.jobs.list(pool.pool_id)) == 5

        gone = await store.jobs.prune(DAY)

        assert gone >= 2
        assert [job.payload for job in await store.jobs.list(pool.pool_id)] == ["poisoned", "claimed", "pending"]
        await store.jobs.prune(DAY, [JobStatus.POISONED, JobStatus.CLAIMED, JobStatus.PENDING])
        assert [job.payload for job in await store.jobs.list(pool.pool_id)] == ["claimed", "pending"]
        with pytest.raises(NotFound):
            await store.jobs.attempts(jobs[1].job_id)

    async def test_pruning_does_not_lower_how_many_jobs_were_done_so_far(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, *range(6), max_attempts=1)
        for said in (AttemptOutcome.DONE, AttemptOutcome.FAILED, AttemptOutcome.CANCELLED):
            jobs = await store.queue.claim(claiming(pool, limit=2))
            await store.queue.settle(holder(pool), [verdict(job, said) for job in jobs])
        for _ in range(2):
            counts = await store.jobs.counts(pool.pool_id)
            assert (counts.done_so_far, counts.poisoned_so_far) == (2, 2)
            await store.jobs.prune(timedelta(microseconds=-1), [JobStatus.DONE, JobStatus.POISONED, JobStatus.CANCELLED])

        counts = await store.jobs.counts(pool.pool_id)
        assert (counts.done, counts.poisoned, counts.cancelled) == (0, 0, 0)
        await pushed(store, pool, 7)
        await store.queue.settle(holder(pool), [verdict(await claimed(store, pool))])
        assert (await store.jobs.counts(pool.pool_id)).done_so_far == 3
        await store.pools.delete(pool.pool_id)
        assert await store.jobs.counts(pool.pool_id) == JobCounts()

    async def test_an_id_is_not_used_again_when_its_job_was_pruned(self, store: Store, pool: PoolRow) -> None:
        await pushed(store, pool, 1)
        job = await claimed(store, pool)
        await store.queue.settle(holder(pool), [verdict(job)])
        await store.jobs.prune(timedelta(microseconds=-1))
        assert [*await store.jobs.list(pool.pool_id)] == []

        [new] = await pushed(store, pool, 2)
        assert new != job.job_id

    async def test_the_jobs_of_a_deleted_pool_are_gone(self, store: Store, pool: PoolRow) -> None:
        name = JobId(unique("job"))
        [job_id] = await pushed(store, pool, 1, job_id=name)
        await store.pools.delete(pool.pool_id)

        with pytest.raises(NotFound):
            await store.jobs.get(job_id)
        other = await store.pools.create(new_pool())
        assert await pushed(store, other, 2, job_id=name) == [name]
