"""Tests of reading workflows, of deleting their jobs, and of many processes that work on one workflow at the same time."""

import asyncio
from collections import Counter

import pytest

from drumbeat.core.errors import NotFound
from drumbeat.core.job import AttemptOutcome, IfFailed, JobId, JobStatus
from drumbeat.core.pool import PoolRow
from drumbeat.core.worker import WorkerId
from drumbeat.store.contract.flow_pushes import FlowPushContract
from drumbeat.store.contract.flows import FlowContract
from drumbeat.store.contract.given import DAY, MINUTE, W1, Elapse, new_pool, unique
from drumbeat.store.contract.given_flows import ended, linked, poisoned, statuses
from drumbeat.store.contract.given_jobs import claimed, claiming, holder, pushed, verdict
from drumbeat.store.contract.linked_pools import LinkedPoolsContract
from drumbeat.store.interface import Store


class WorkflowContract(FlowContract, FlowPushContract, LinkedPoolsContract):
    """All tests of workflows: those of the base classes, and tests of reading, deleting and concurrent processes."""

    async def test_waiting_jobs_are_counted_and_listed(self, store: Store, pool: PoolRow) -> None:
        parents = await pushed(store, pool, 1)
        children = [await linked(store, pool, *parents) for _ in range(3)]

        counts = await store.jobs.counts(pool.pool_id)
        assert (counts.ready, counts.waiting, counts.pending) == (1, 3, 1)
        assert await store.jobs.size(pool.pool_id) == 1
        assert await store.jobs.demand(pool.pool_id) == {"": 1}
        waiting = await store.jobs.list(pool.pool_id, statuses=[JobStatus.WAITING])
        assert [job.job_id for job in waiting] == children
        assert [job.job_id for job in await store.jobs.list(pool.pool_id, limit=2)] == [*parents, children[0]]
        assert [job.job_id for job in await store.jobs.list(pool.pool_id, after=children[1])] == children[2:]

    async def test_what_a_child_was_given_is_kept(self, store: Store, pool: PoolRow) -> None:
        [parent] = await pushed(store, pool, 1)
        flow = unique("flow")
        child = await linked(store, pool, parent, after_any=True, if_failed=IfFailed.SKIP, workflow_id=flow, priority=3)

        job = await store.jobs.get(child)

        assert (job.after_any, job.if_failed, job.workflow_id, job.priority) == (True, IfFailed.SKIP, flow, 3)
        assert (job.has_children, (await store.jobs.get(parent)).has_children) == (False, True)
        assert (await store.jobs.get(parent)).if_failed is None

    async def test_parents_are_read_with_their_results(self, store: Store, pool: PoolRow) -> None:
        parents = await pushed(store, pool, 1, 2)
        child = await linked(store, pool, *reversed(parents))
        for result in ({"a": 1}, [2]):
            await ended(store, pool, result=result)

        assert [(job.job_id, job.result) for job in await store.jobs.parents(child)] == [
            (parents[0], {"a": 1}),
            (parents[1], [2]),
        ]
        assert [job.job_id for job in await store.jobs.parents(child, 1)] == parents[:1]
        assert [job.job_id for job in await store.jobs.children(parents[0])] == [child]
        assert (await store.jobs.parents(parents[0]), await store.jobs.children(child)) == ([], [])
        with pytest.raises(NotFound):
            await store.jobs.parents(JobId("nobody"))
        with pytest.raises(NotFound):
            await store.jobs.children(JobId("nobody"))

    async def test_the_jobs_of_a_workflow_are_listed_and_counted_in_all_pools(self, store: Store, pool: PoolRow) -> None:
        flow, other = unique("flow"), await store.pools.create(new_pool())
        [parent] = await pushed(store, pool, 1, workflow_id=flow)
        child = await linked(store, other, parent, workflow_id=flow)
        await pushed(store, pool, 2)
        await ended(store, pool)

        assert [job.job_id for job in await store.jobs.of_workflow(flow)] == [parent, child]
        assert [job.job_id for job in await store.jobs.of_workflow(flow, after=parent)] == [child]
        assert [job.job_id for job in await store.jobs.of_workflow(flow, statuses=[JobStatus.DONE] * 2)] == [parent]
        assert len(await store.jobs.of_workflow(flow, limit=1)) == 1
        assert dict(await store.jobs.workflow_counts(flow)) == {"done": 1, "pending": 1}
        assert (await store.jobs.of_workflow("none"), dict(await store.jobs.workflow_counts("none"))) == ([], {})

    async def test_a_parent_is_kept_while_a_child_is_unfinished(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, pool, parent)
        await ended(store, pool)
        await elapse(2 * DAY)

        await store.jobs.prune(DAY)
        assert await statuses(store, parent) == ["done"]
        await ended(store, pool)
        await store.jobs.prune(DAY)

        with pytest.raises(NotFound):
            await store.jobs.get(parent)
        assert await store.jobs.parents(child) == []
        assert await statuses(store, child) == ["done"]

    async def test_a_parent_is_kept_while_a_child_is_poisoned(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        parents = await pushed(store, pool, 1, 2)
        child = await linked(store, pool, *parents)
        for result in ("a", "b"):
            await ended(store, pool, result=result)
        await poisoned(store, pool)
        await elapse(2 * DAY)

        await store.jobs.prune(DAY)
        await store.jobs.requeue(pool.pool_id, [child])

        assert [job.result for job in await store.jobs.parents(child)] == ["a", "b"]
        await ended(store, pool)
        await store.jobs.prune(DAY)
        assert await store.jobs.parents(child) == []

    async def test_a_poisoned_child_is_pruned_before_its_parents(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, pool, parent)
        await ended(store, pool)
        await poisoned(store, pool)
        await elapse(2 * DAY)

        await store.jobs.prune(DAY, [JobStatus.DONE, JobStatus.POISONED])

        for gone in (parent, child):
            with pytest.raises(NotFound):
                await store.jobs.get(gone)

    async def test_links_go_with_their_child(self, store: Store, pool: PoolRow, elapse: Elapse) -> None:
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, pool, parent)
        await store.jobs.cancel([child])
        await elapse(2 * DAY)

        await store.jobs.prune(DAY)

        assert await store.jobs.children(parent) == []
        assert (await ended(store, pool)).status is JobStatus.DONE

    @pytest.mark.parametrize("child_first", [False, True])
    @pytest.mark.parametrize("if_failed", IfFailed)
    async def test_a_parent_and_its_child_are_cancelled_together(
        self, store: Store, pool: PoolRow, if_failed: IfFailed, child_first: bool
    ) -> None:
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, pool, parent, if_failed=if_failed)
        both = [child, parent] if child_first else [parent, child]

        cancelled = await store.jobs.cancel(both)

        assert sorted((job.job_id, str(job.status)) for job in cancelled) == [(parent, "cancelled"), (child, "cancelled")]
        assert await statuses(store, parent, child) == ["cancelled", "cancelled"]
        assert [(await store.jobs.get(job_id)).last_error for job_id in both] == [None, None]
        counts = await store.jobs.counts(pool.pool_id)
        assert (counts.cancelled, counts.waiting, counts.pending) == (2, 0, 0)

    async def test_a_deleted_pool_takes_its_workflows_along(self, store: Store, pool: PoolRow) -> None:
        flow = unique("flow")
        [parent] = await pushed(store, pool, 1, workflow_id=flow)
        await linked(store, pool, parent, workflow_id=flow)

        await store.pools.delete(pool.pool_id)

        assert await store.jobs.of_workflow(flow) == []

    async def test_eight_settlers_at_once_release_a_child_once(self, store: Store, pool: PoolRow) -> None:
        parents = await pushed(store, pool, *range(24))
        children = [await linked(store, pool, *parents) for _ in range(3)]
        names = [WorkerId(f"w{n}") for n in range(8)]
        held = [await store.queue.claim(claiming(pool, name, limit=3)) for name in names]

        async with asyncio.TaskGroup() as group:
            for name, jobs in zip(names, held, strict=True):
                group.create_task(store.queue.settle(holder(pool, name), [verdict(job) for job in jobs]))

        assert await statuses(store, *children) == ["pending"] * 3
        assert sorted(job.job_id for job in await store.queue.claim(claiming(pool, limit=9))) == sorted(children)
        assert {(await store.jobs.get(child)).waits_for for child in children} == {0}

    async def test_a_push_against_the_end_of_its_parent_never_loses_the_child(self, store: Store, pool: PoolRow) -> None:
        parents = await pushed(store, pool, *range(12))
        held = await store.queue.claim(claiming(pool, limit=12))
        children: list[JobId] = []

        async def push(parent: JobId) -> None:
            children.append(await linked(store, pool, parent))

        async with asyncio.TaskGroup() as group:
            for parent, job in zip(parents, held, strict=True):
                group.create_task(push(parent))
                group.create_task(store.queue.settle(holder(pool), [verdict(job)]))

        assert Counter(await statuses(store, *children)) == {"pending": 12}
        assert Counter(await statuses(store, *parents)) == {"done": 12}

    async def test_two_parents_that_fail_at_once_skip_a_child_that_needs_any(self, store: Store, pool: PoolRow) -> None:
        parents = await pushed(store, pool, *range(6))
        child = await linked(store, pool, *parents, after_any=True, if_failed=IfFailed.SKIP)
        held = await store.queue.claim(claiming(pool, limit=6))

        async with asyncio.TaskGroup() as group:
            for job in held:
                outcome = verdict(job, AttemptOutcome.FAILED, fatal=True, error="no luck")
                group.create_task(store.queue.settle(holder(pool), [outcome]))

        assert await statuses(store, child) == ["cancelled"]

    async def test_a_settlement_that_is_repeated_counts_once(self, store: Store, pool: PoolRow) -> None:
        parents = await pushed(store, pool, 1, 2)
        child = await linked(store, pool, *parents)
        job = await claimed(store, pool)

        await store.queue.settle(holder(pool), [verdict(job), verdict(job)])
        again = await store.queue.settle(holder(pool), [verdict(job)])

        assert again.stale == (job.token,)
        assert (await store.jobs.get(child)).waits_for == 1

    async def test_a_worker_that_waits_is_woken_for_a_child_in_another_pool(self, store: Store, pool: PoolRow) -> None:
        other = await store.pools.create(new_pool())
        [parent] = await pushed(store, pool, 1)
        child = await linked(store, other, parent)
        job = await claimed(store, pool)
        assert await store.queue.claim(claiming(other)) == []

        async with asyncio.TaskGroup() as group:
            waited = group.create_task(store.queue.wait(other.pool_id, MINUTE))
            await store.queue.settle(holder(pool, W1), [verdict(job)])
            assert await waited

        assert (await claimed(store, other)).job_id == child
