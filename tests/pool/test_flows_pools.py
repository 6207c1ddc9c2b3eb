"""Workflows over three pools whose workers have the same ids: no worker of one pool touches what waits in another."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import Refused
from drumbeat.core.job import AttemptOutcome, IfFailed, Job, JobId, JobOutcome, JobStatus, NewJob
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.pool.service import Pool
from drumbeat.store import open_store
from drumbeat.store.interface import ClaimRequest, Store

POOLS = tuple(map(PoolId, ("a", "b", "c")))


@dataclass(frozen=True, slots=True)
class Three:
    """A store with three pools; each has a worker with the id ``w1``, and all have the same instance."""

    store: Store

    def worker(self, pool_id: PoolId) -> Holder:
        return Holder(pool_id=pool_id, worker_id=WorkerId("w1"), instance="same")

    async def claim(self, pool_id: PoolId) -> Job:
        request = ClaimRequest(pool_id=pool_id, holder=self.worker(pool_id), lease=timedelta(minutes=1))
        [job] = await self.store.queue.claim(request)
        return job

    async def settle(self, job: Job, by: PoolId, outcome: AttemptOutcome = AttemptOutcome.DONE) -> bool:
        """Record the outcome of a job as the worker of a pool; returns whether it was accepted."""
        done = JobOutcome(token=job.token, outcome=outcome, result=job.pool_id, fatal=True)
        return not (await self.store.queue.settle(self.worker(by), [done])).stale

    async def child(self, pool_id: PoolId, *parents: JobId, if_failed: IfFailed = IfFailed.BLOCK) -> JobId:
        [job_id] = await self.store.queue.push(pool_id, [NewJob(payload="child", after=parents, if_failed=if_failed)])
        return job_id

    async def state(self, job_id: JobId) -> tuple[JobStatus, int]:
        job = await self.store.jobs.get(job_id)
        return job.status, job.waits_for


@pytest.fixture(params=["memory", "sqlite"])
async def three(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Three]:
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    async with open_store(url, create=True) as store:
        for name in POOLS:
            await store.pools.create(pool(name, PoolKind.JOBS))
        yield Three(store)


async def parents_in(three: Three) -> list[Job]:
    """Push a job to each pool, and let the worker of each pool claim it."""
    for name in POOLS:
        await three.store.queue.push(name, [NewJob(payload=name)])
    return [await three.claim(name) for name in POOLS]


async def test_a_worker_does_not_end_the_parent_that_its_namesake_holds(three: Three) -> None:
    parents = await parents_in(three)
    child = await three.child(PoolId("a"), *(job.job_id for job in parents))

    accepted = [await three.settle(job, by) for job in parents for by in POOLS if by != job.pool_id]

    assert accepted == [False] * 6
    assert await three.state(child) == (JobStatus.WAITING, 3)
    assert [await three.settle(job, job.pool_id) for job in parents] == [True] * 3
    assert await three.state(child) == (JobStatus.PENDING, 0)
    assert [job.result for job in await three.store.jobs.parents(child)] == ["a", "b", "c"]


async def test_a_lost_worker_holds_up_only_what_waits_for_its_own_job(three: Three) -> None:
    parents = await parents_in(three)
    children = [await three.child(PoolId("b"), job.job_id) for job in parents]

    taken = await three.store.queue.release(three.worker(PoolId("a")), "it was killed")
    for job in parents[1:]:
        assert await three.settle(job, job.pool_id)

    assert [job.job_id for job in taken] == [parents[0].job_id]
    assert [(await three.state(each))[0] for each in children] == [JobStatus.WAITING, JobStatus.PENDING, JobStatus.PENDING]
    assert not await three.settle(parents[0], PoolId("a")), "a result of before the loss is late"
    assert await three.settle(await three.claim(PoolId("a")), PoolId("a"))
    assert (await three.state(children[0]))[0] is JobStatus.PENDING


async def test_a_parent_that_fails_in_one_pool_skips_and_runs_children_in_the_others(three: Three) -> None:
    failed, *others = await parents_in(three)
    skipped = await three.child(PoolId("b"), failed.job_id, if_failed=IfFailed.SKIP)
    anyway = await three.child(PoolId("c"), failed.job_id, others[0].job_id, if_failed=IfFailed.RUN)

    assert await three.settle(failed, PoolId("a"), AttemptOutcome.FAILED)

    assert (await three.state(skipped))[0] is JobStatus.CANCELLED
    assert await three.state(anyway) == (JobStatus.WAITING, 1)
    assert await three.settle(others[0], PoolId("b"))
    assert (await three.claim(PoolId("c"))).job_id == anyway


@pytest.mark.parametrize(
    ("if_failed", "status"), [(IfFailed.BLOCK, "waiting"), (IfFailed.SKIP, "cancelled"), (IfFailed.RUN, "pending")]
)
async def test_deleting_a_pool_with_unfinished_jobs_ends_them_first_for_children_in_other_pools(
    three: Three, if_failed: IfFailed, status: str
) -> None:
    [parent] = await three.store.queue.push(POOLS[0], [NewJob(payload="parent")])
    between = await three.child(POOLS[0], parent)
    child = await three.child(POOLS[1], between, if_failed=if_failed)
    deleted = Pool(three.store, SystemClock(), POOLS[0], "me")

    if if_failed is IfFailed.SKIP:
        assert (await deleted.delete(unfinished=True)).waiting == 1
        assert await three.store.pools.find(POOLS[0]) is None
    else:
        with pytest.raises(Refused, match=f"drumbeat pool cancel b {child}"):
            await deleted.delete(unfinished=True)
        assert (await three.store.jobs.get(parent)).status is JobStatus.CANCELLED
    assert (await three.state(child))[0] == status


async def test_a_refused_deletion_keeps_the_finished_jobs(three: Three) -> None:
    for job in await parents_in(three):
        await three.settle(job, job.pool_id)
    [plain] = await three.store.jobs.list(POOLS[0])
    [parent] = await three.store.queue.push(POOLS[0], [NewJob(payload="parent")])
    child = await three.child(POOLS[1], parent)
    await three.settle(await three.claim(POOLS[0]), POOLS[0])

    with pytest.raises(Refused, match=child):
        await Pool(three.store, SystemClock(), POOLS[0], "me").delete(unfinished=True)

    assert [job.job_id for job in await three.store.jobs.list(POOLS[0])] == [plain.job_id, parent]
