"""Tests of jobs that wait for other jobs: pushing them, and what happens to them when the other jobs end."""

import pytest

from drumbeat.core.errors import InvalidInput, NotFound
from drumbeat.core.job import AttemptOutcome, IfFailed, JobId, JobStatus, NewJob
from drumbeat.core.pool import PoolRow
from drumbeat.store.contract.given import MINUTE, SECOND, W2, Elapse, Given, new_pool, unique
from drumbeat.store.contract.given_flows import ended, linked, named, poisoned, statuses
from drumbeat.store.contract.given_jobs import claimed, claiming, holder, pushed, verdict
from drumbeat.store.interface import Store


def cancelled_jobs(expected: str) -> int:
    """Return how many jobs are cancelled: the parent, and its two descendants if ``expected`` says that they are, too."""
    return 3 if expected == "cancelled" else 1


class FlowContract(Given):
    """Tests of jobs with parents."""

    async def test_a_job_waits_until_its_parent_is_done(self, store: Store, pool: PoolRow) -> None:
        [parent] = await pushed(store, pool, "parent")
        child = await linked(store, pool, parent)
        assert await statuses(store, parent, child) == ["pending", "waiting"]
        job = await claimed(store, pool)
        assert await store.queue.claim(claiming(pool)) == []

        await store.queue.settle(holder(pool), [verdict(job, result=7)])

        assert await statuses(store, parent, child) == ["done", "pending"]
        assert (await claimed(store, pool)).job_id == child

    async def test_a_child_can_be_claimed_in_the_call_that_ends_its_parent(self, store: Store, pool: PoolRow) -> None:
        [parent] = await pushed(store, pool, "parent")
        child = await linked(store, pool, parent)
        job = await claimed(store, pool)

        settled = await store.queue.settle(holder(pool), [verdict(job)], claiming(pool))

        assert [job.job_id for job in settled.claimed] == [child]

    async def test_a_child_pushed_while_its_parent_runs_is_not_forgotten(self, store: Store, pool: PoolRow) -> None:
        [parent] = await pushed(store, pool, "parent")
        job = await claimed(store, pool)
        child = await linked(store, pool, parent)

        settled = await store.queue.settle(holder(pool), [verdict(job)], claiming(pool))

        assert settled.stale == ()
        assert [job.job_id for job in settled.claimed] == [child]

    async def test_a_job_with_several_parents_waits_for_the_last(self, store: Store, pool: PoolRow) -> None:
        parents = await pushed(store, pool, 1, 2, 3)
        child = await linked(store, pool, *parents)

        for left in (2, 1):
            await ended(store, pool)
            job = await store.jobs.get(child)
            assert (job.status, job.waits_for) == (JobStatus.WAITING, left)
        await ended(store, pool)

        assert await statuses(store, child) == ["pending"]

    async def test_parents_that_end_in_one_call_count_each(self, store: Store, pool: PoolRow) -> None:
        parents = await pushed(store, pool, *range(5))
        child = await linked(store, pool, *parents)
        jobs = await store.queue.claim(claiming(pool, limit=5))

        await store.queue.settle(holder(pool), [verdict(job) for job in jobs[:4]])
        assert (await store.jobs.get(child)).waits_for == 1
        await store.queue.settle(holder(pool), [verdict(jobs[4])])

        assert await statuses(store, child) == ["pending"]

    async def test_a_parent_named_twice_counts_once(self, store: Store, pool: PoolRow) -> None:
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, pool, parent, parent)

        await ended(store, pool)

        assert await statuses(store, child) == ["pending"]

    async def test_a_parent_that_is_done_already_is_not_waited_for(self, store: Store, pool: PoolRow) -> None:
        done, open_one = await pushed(store, pool, 1, 2)
        await ended(store, pool)

        ready, waits = await linked(store, pool, done), await linked(store, pool, done, open_one)

        assert await statuses(store, ready, waits) == ["pending", "waiting"]
        assert (await store.jobs.get(waits)).waits_for == 1

    async def test_one_parent_is_enough_with_after_any(self, store: Store, pool: PoolRow) -> None:
        parents = await pushed(store, pool, 1, 2)
        child = await linked(store, pool, *parents, after_any=True)
        assert (await store.jobs.get(child)).waits_for == 1

        await ended(store, pool)
        assert await statuses(store, child) == ["pending"]
        await ended(store, pool)

        assert await statuses(store, child) == ["pending"]
        assert len(await store.queue.claim(claiming(pool, limit=5))) == 1

    async def test_parents_may_be_in_another_pool(self, store: Store, pool: PoolRow) -> None:
        other = await store.pools.create(new_pool())
        [parent] = await pushed(store, other, 1)
        child = await linked(store, pool, parent)

        await ended(store, other)

        assert (await claimed(store, pool)).job_id == child

    async def test_jobs_of_one_push_may_name_each_other_in_any_order(self, store: Store, pool: PoolRow) -> None:
        a, b, c = (JobId(unique(name)) for name in "abc")

        ids = await store.queue.push(pool.pool_id, [named(c, a, b), named(b, a), named(a)])

        assert [*ids] == [c, b, a]
        assert await statuses(store, a, b, c) == ["pending", "waiting", "waiting"]
        assert [(await ended(store, pool)).job_id for _ in range(3)] == [a, b, c]

    async def test_a_missing_parent_is_refused_and_nothing_is_pushed(self, store: Store, pool: PoolRow) -> None:
        with pytest.raises(NotFound, match="there is no job 'nobody' to wait for"):
            await store.queue.push(pool.pool_id, [NewJob(payload=1), NewJob(payload=2, after=(JobId("nobody"),))])
        with pytest.raises(NotFound, match="j999999999999"):
            await linked(store, pool, JobId("j999999999999"))

        assert await store.jobs.list(pool.pool_id) == []

    async def test_a_circle_is_refused_and_nothing_is_pushed(self, store: Store, pool: PoolRow) -> None:
        a, b = (JobId(unique(name)) for name in "ab")

        with pytest.raises(InvalidInput, match="circle"):
            await store.queue.push(pool.pool_id, [named(a, b), named(b, a)])
        with pytest.raises(InvalidInput, match="circle"):
            await store.queue.push(pool.pool_id, [named(a, a)])

        assert await store.jobs.list(pool.pool_id) == []

    async def test_a_workflow_pushed_again_changes_nothing(self, store: Store, pool: PoolRow) -> None:
        a, b = (JobId(unique(name)) for name in "ab")
        jobs = [named(a), named(b, a)]
        await store.queue.push(pool.pool_id, jobs)
        await ended(store, pool)

        assert [*await store.queue.push(pool.pool_id, jobs)] == [a, b]

        assert await statuses(store, a, b) == ["done", "pending"]
        assert [job.job_id for job in await store.jobs.parents(b)] == [a]

    async def test_a_parent_left_out_for_its_unique_key_stands_for_the_other_job(self, store: Store, pool: PoolRow) -> None:
        [other] = await pushed(store, pool, 1, unique_key="k")
        a, b = (JobId(unique(name)) for name in "ab")

        ids = await store.queue.push(pool.pool_id, [named(a, unique_key="k"), named(b, a)])

        assert [*ids] == [other, b]
        assert [job.job_id for job in await store.jobs.parents(b)] == [other]

    async def test_a_parent_left_out_for_the_unique_key_of_another_job_of_the_push_stands_for_that_job(
        self, store: Store, pool: PoolRow
    ) -> None:
        a, b, c = (JobId(unique(name)) for name in "abc")

        ids = await store.queue.push(pool.pool_id, [named(a, unique_key="k"), named(b, unique_key="k"), named(c, b)])
        await store.queue.settle(holder(pool), [verdict(await claimed(store, pool))])

        assert [*ids] == [a, a, c]
        assert (await store.jobs.get(c)).status is JobStatus.PENDING

    async def test_a_waiting_job_keeps_its_unique_key(self, store: Store, pool: PoolRow) -> None:
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, pool, parent, unique_key="k")

        assert await pushed(store, pool, 2, unique_key="k") == [child]

    async def test_a_delayed_child_waits_for_its_time_as_well(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, pool, parent, delay=10 * MINUTE)
        await ended(store, pool)

        assert await store.queue.claim(claiming(pool)) == []
        assert (await store.jobs.counts(pool.pool_id)).delayed == 1
        await elapse(11 * MINUTE)

        assert (await claimed(store, pool)).job_id == child

    async def test_a_failed_attempt_that_is_tried_again_releases_nobody(self, store: Store, pool: PoolRow) -> None:
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, pool, parent, if_failed=IfFailed.RUN)
        job = await claimed(store, pool)

        await store.queue.settle(holder(pool), [verdict(job, AttemptOutcome.FAILED, error="no luck")])

        assert await statuses(store, parent, child) == ["pending", "waiting"]

    async def test_a_stale_outcome_releases_nobody(self, store: Store, pool: PoolRow) -> None:
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, pool, parent)
        late = await claimed(store, pool)
        await store.queue.release(holder(pool), "silent")
        await claimed(store, pool, W2)

        settled = await store.queue.settle(holder(pool), [verdict(late)])

        assert settled.stale == (late.token,)
        assert await statuses(store, parent, child) == ["claimed", "waiting"]

    async def test_a_blocked_child_waits_until_its_parent_is_requeued_and_done(self, store: Store, pool: PoolRow) -> None:
        parents = await pushed(store, pool, 1, 2)
        child = await linked(store, pool, *parents)
        await poisoned(store, pool)
        await ended(store, pool)
        job = await store.jobs.get(child)
        assert (job.status, job.waits_for) == (JobStatus.WAITING, 1)

        await store.jobs.requeue(pool.pool_id, [parents[0]])
        assert await statuses(store, parents[0], child) == ["pending", "waiting"]
        await ended(store, pool)

        assert await statuses(store, child) == ["pending"]

    async def test_a_skipped_child_is_cancelled_and_so_are_its_own(self, store: Store, pool: PoolRow) -> None:
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, pool, parent, if_failed=IfFailed.SKIP)
        grandchild = await linked(store, pool, child, if_failed=IfFailed.SKIP)
        after_all = await linked(store, pool, grandchild, if_failed=IfFailed.RUN)

        await poisoned(store, pool)

        assert await statuses(store, parent, child, grandchild, after_all) == ["poisoned", "cancelled", "cancelled", "pending"]
        skipped = await store.jobs.get(child)
        assert skipped.last_error == f"skipped, because job {parent} was poisoned and this job runs only after it is done"
        assert skipped.finished_at is not None
        counts = await store.jobs.counts(pool.pool_id)
        assert (counts.poisoned, counts.cancelled, counts.ready, counts.waiting) == (1, 2, 1, 0)

    async def test_a_child_that_runs_anyway_runs_after_a_failed_parent(self, store: Store, pool: PoolRow) -> None:
        parents = await pushed(store, pool, 1, 2)
        child = await linked(store, pool, *parents, if_failed=IfFailed.RUN)

        await poisoned(store, pool)
        assert await statuses(store, child) == ["waiting"]
        await store.jobs.cancel([parents[1]])

        assert await statuses(store, child) == ["pending"]

    async def test_a_parent_that_fails_twice_counts_once(self, store: Store, pool: PoolRow) -> None:
        parents = await pushed(store, pool, 1, 2)
        child = await linked(store, pool, *parents, if_failed=IfFailed.RUN)
        await poisoned(store, pool)

        await store.jobs.requeue(pool.pool_id, [parents[0]])
        assert (await store.jobs.get(child)).waits_for == 2
        await poisoned(store, pool)

        job = await store.jobs.get(child)
        assert (job.status, job.waits_for) == (JobStatus.WAITING, 1)

    @pytest.mark.parametrize(
        ("if_failed", "expected"), [(IfFailed.BLOCK, "waiting"), (IfFailed.SKIP, "cancelled"), (IfFailed.RUN, "pending")]
    )
    async def test_a_parent_that_failed_before_the_push_counts_as_failed(
        self, store: Store, pool: PoolRow, if_failed: IfFailed, expected: str
    ) -> None:
        [parent] = await pushed(store, pool, 1)
        await store.jobs.cancel([parent])

        child = await linked(store, pool, parent, if_failed=if_failed)
        grandchild = await linked(store, pool, child, if_failed=if_failed)

        assert await statuses(store, child) == [expected]
        assert await statuses(store, grandchild) == [{"pending": "waiting"}.get(expected, expected)]
        counts = await store.jobs.counts(pool.pool_id)
        assert counts.cancelled == cancelled_jobs(expected)

    async def test_after_any_skips_only_when_every_parent_failed(self, store: Store, pool: PoolRow) -> None:
        parents = await pushed(store, pool, 1, 2)
        child = await linked(store, pool, *parents, after_any=True, if_failed=IfFailed.SKIP)

        await poisoned(store, pool)
        assert await statuses(store, child) == ["waiting"]
        await poisoned(store, pool)

        assert await statuses(store, child) == ["cancelled"]

    async def test_after_any_runs_when_one_of_two_parents_failed(self, store: Store, pool: PoolRow) -> None:
        parents = await pushed(store, pool, 1, 2)
        child = await linked(store, pool, *parents, after_any=True, if_failed=IfFailed.SKIP)

        await poisoned(store, pool)
        await ended(store, pool)

        assert await statuses(store, child) == ["pending"]

    @pytest.mark.parametrize("ending", ["release", "expire", "cancelled outcome", "cancelled by a user"])
    async def test_every_way_to_end_a_job_reaches_its_children(
        self, store: Store, pool: PoolRow, elapse: Elapse, ending: str
    ) -> None:
        [parent] = await pushed(store, pool, 1, max_crashes=1)
        child = await linked(store, pool, parent, if_failed=IfFailed.SKIP)
        if ending == "cancelled by a user":
            await store.jobs.cancel([parent])
        else:
            job = await claimed(store, pool, alone=True, lease=SECOND)
            if ending == "release":
                await store.queue.release(holder(pool), "silent")
            elif ending == "expire":
                for _ in range(2):
                    await elapse(MINUTE)
                    await store.queue.expire(100_000)
            else:
                await store.queue.settle(holder(pool), [verdict(job, AttemptOutcome.CANCELLED)])

        assert (await statuses(store, parent))[0] in ("poisoned", "cancelled")
        assert await statuses(store, child) == ["cancelled"]

    async def test_a_waiting_job_can_be_cancelled(self, store: Store, pool: PoolRow) -> None:
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, pool, parent)
        grandchild = await linked(store, pool, child, if_failed=IfFailed.SKIP)

        [cancelled] = await store.jobs.cancel([child])
        await ended(store, pool)

        assert (cancelled.job_id, cancelled.status) == (child, JobStatus.CANCELLED)
        assert await statuses(store, child, grandchild) == ["cancelled", "cancelled"]
        assert await store.queue.claim(claiming(pool)) == []

    async def test_a_requeued_subtree_waits_again_in_order(self, store: Store, pool: PoolRow) -> None:
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, pool, parent, if_failed=IfFailed.SKIP)
        await poisoned(store, pool)

        requeued = await store.jobs.requeue(pool.pool_id, [child, parent])
        assert sorted(requeued) == sorted([parent, child])
        assert await statuses(store, parent, child) == ["pending", "waiting"]
        assert [(await ended(store, pool)).job_id for _ in range(2)] == [parent, child]

        counts = await store.jobs.counts(pool.pool_id)
        assert (counts.done, counts.poisoned, counts.cancelled, counts.waiting) == (2, 0, 0, 0)

    async def test_a_skipped_child_requeued_alone_waits_for_its_failed_parent(self, store: Store, pool: PoolRow) -> None:
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, pool, parent, if_failed=IfFailed.SKIP)
        await poisoned(store, pool)

        await store.jobs.requeue(pool.pool_id, [child])
        assert await statuses(store, child) == ["waiting"]
        await store.jobs.requeue(pool.pool_id, [parent])
        await ended(store, pool)

        assert await statuses(store, child) == ["pending"]

    async def test_a_poisoned_child_whose_parents_are_done_is_pending_when_requeued(self, store: Store, pool: PoolRow) -> None:
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, pool, parent)
        await ended(store, pool)
        await poisoned(store, pool)

        await store.jobs.requeue(pool.pool_id, [child])

        assert await statuses(store, child) == ["pending"]
        assert (await claimed(store, pool)).job_id == child
