"""Tests of pushing jobs with parents when a job with the same id or unique key exists already, or is in the same push."""

from datetime import timedelta

import pytest

from drumbeat.core.errors import NotFound
from drumbeat.core.job import IfFailed, JobId, JobStatus
from drumbeat.core.pool import PoolRow
from drumbeat.store.contract.given import SECOND, Elapse, Given, unique
from drumbeat.store.contract.given_flows import ended, linked, named, statuses
from drumbeat.store.contract.given_jobs import pushed
from drumbeat.store.interface import Store


class FlowPushContract(Given):
    """Tests of pushing jobs with parents when a job with the same id or unique key exists already, or is in the same push."""

    async def test_a_job_skipped_at_once_leaves_its_unique_key_to_the_next_of_the_push(
        self, store: Store, pool: PoolRow
    ) -> None:
        [bad] = await pushed(store, pool, 1)
        await store.jobs.cancel([bad])
        a, b, c, d = (JobId(unique(name)) for name in "abcd")
        first = named(a, bad, unique_key="k", if_failed=IfFailed.SKIP)

        ids = await store.queue.push(pool.pool_id, [first, named(b, unique_key="k"), named(c, unique_key="k"), named(d, c)])

        assert [*ids] == [a, b, b, d]
        assert await statuses(store, a, b, d) == ["cancelled", "pending", "waiting"]
        assert [job.job_id for job in await store.jobs.parents(d)] == [b]
        assert await pushed(store, pool, 2, unique_key="k") == [b]

    async def test_two_parents_that_are_one_job_count_once(self, store: Store, pool: PoolRow) -> None:
        a, b, c, d = (JobId(unique(name)) for name in "abcd")
        both = [named(a, unique_key="k"), named(b, unique_key="k")]

        ids = await store.queue.push(pool.pool_id, [*both, named(c, a, b), named(d, a, b, after_any=True)])

        assert [*ids] == [a, a, c, d]
        assert [(await store.jobs.get(each)).waits_for for each in (c, d)] == [1, 1]
        assert [job.job_id for job in await store.jobs.parents(c)] == [a]
        await ended(store, pool)
        assert await statuses(store, a, c, d) == ["done", "pending", "pending"]

    async def test_a_job_skipped_at_once_is_a_failed_parent_for_the_next_of_the_push(self, store: Store, pool: PoolRow) -> None:
        [bad] = await pushed(store, pool, 1)
        await store.jobs.cancel([bad])
        a, b, c = (JobId(unique(name)) for name in "abc")
        skipped = [named(a, bad, if_failed=IfFailed.SKIP), named(b, a, if_failed=IfFailed.SKIP)]

        await store.queue.push(pool.pool_id, [*skipped, named(c, b, if_failed=IfFailed.RUN)])

        assert await statuses(store, a, b, c) == ["cancelled", "cancelled", "pending"]

    async def test_jobs_listed_before_their_parents_wait_for_them(self, store: Store, pool: PoolRow) -> None:
        a, b, c = (JobId(unique(name)) for name in "abc")

        ids = await store.queue.push(pool.pool_id, [named(c, b), named(b, a), named(a)])

        assert [*ids] == [c, b, a]
        assert [(await ended(store, pool)).job_id for _ in range(3)] == [a, b, c]

    async def test_jobs_of_one_key_that_are_all_skipped_at_once_are_all_kept(self, store: Store, pool: PoolRow) -> None:
        [bad] = await pushed(store, pool, 1)
        await store.jobs.cancel([bad])

        ids = await pushed(store, pool, 1, 2, unique_key="k", after=(bad,), if_failed=IfFailed.SKIP)

        assert len(set(ids)) == 2
        assert await statuses(store, *ids) == ["cancelled", "cancelled"]

    async def test_a_job_pushed_again_after_its_parent_was_pruned_is_left_alone(
        self, store: Store, pool: PoolRow, elapse: Elapse
    ) -> None:
        name = JobId(unique("child"))
        [parent] = await pushed(store, pool, 1)
        await ended(store, pool)
        await linked(store, pool, parent, job_id=name)
        await store.jobs.cancel([name])
        [keyed] = await pushed(store, pool, 2, unique_key="k")
        await elapse(SECOND)
        await store.jobs.prune(timedelta(), [JobStatus.DONE])
        with pytest.raises(NotFound):
            await store.jobs.get(parent)

        again = await linked(store, pool, parent, job_id=name)
        by_key = await linked(store, pool, parent, unique_key="k")

        assert (again, by_key) == (name, keyed)
        assert await statuses(store, name, keyed) == ["cancelled", "pending"]
        with pytest.raises(NotFound, match=parent):
            await linked(store, pool, parent, job_id=JobId(unique("new")), unique_key="other")
