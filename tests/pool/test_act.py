"""Doing what was decided for a pool of jobs: only the dead lose their jobs; asking twice is asking once."""

import pytest

from drumbeat.core.errors import Fenced, StaleWrite
from drumbeat.core.job import JobStatus
from drumbeat.core.lease import Lease
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.pool.act import PoolActor
from drumbeat.pool.model import Action, EndStray, ExpireLeases, MarkLost, SpawnJobWorker, TakeBackJobs
from pool.seen import POOL, name, seconds
from pool.stage import Stage

BECAUSE = "the test says so"
FIRST = name(0)


@pytest.fixture
async def stage() -> Stage:
    """Worker 0 is active and holds a job, two more are ready."""
    stage = await Stage().open()
    await stage.push(3)
    await stage.join(name(0))
    await stage.claim(name(0))
    return stage


async def lead(stage: Stage) -> Lease:
    lease = await stage.store.leases.acquire(POOL, "me", seconds(600))
    assert lease is not None
    return lease


async def do(stage: Stage, *actions: Action) -> None:
    actor, lease = PoolActor(stage.store, stage.spawner, POOL), await lead(stage)
    try:
        for action in actions:
            await actor.act(action, lease.fence)
    finally:
        await stage.store.leases.release(lease)


def release(worker_id: WorkerId = FIRST) -> TakeBackJobs:
    return TakeBackJobs(worker_id=worker_id, reason="the worker ended but still holds 1 job")


async def test_a_lost_workers_job_is_ready_again_with_a_crash_counted(stage: Stage) -> None:
    (row,) = await stage.workers()

    await do(stage, MarkLost(worker=row, reason=BECAUSE), release())

    ready = await stage.jobs(JobStatus.PENDING)
    assert [job.crashes for job in ready] == [1, 0, 0]
    assert ready[0].last_error == "the worker ended but still holds 1 job"


async def test_a_worker_that_was_heard_of_since_keeps_its_job(stage: Stage) -> None:
    with pytest.raises(StaleWrite, match=r"jobs of worker .* not taken back: .* after a new heartbeat"):
        await do(stage, release())

    assert len(await stage.jobs(JobStatus.CLAIMED)) == 1


async def test_what_a_worker_without_a_row_holds_is_left_to_its_lease(stage: Stage) -> None:
    await stage.claim(WorkerId("passing-by"))

    await do(stage, release(WorkerId("passing-by")))

    assert [job.lease_owner for job in await stage.jobs(JobStatus.CLAIMED)] == [name(0), "passing-by"]


async def test_releasing_twice_counts_one_crash(stage: Stage) -> None:
    (row,) = await stage.workers()

    await do(stage, MarkLost(worker=row, reason=BECAUSE), release(), release())

    assert [job.crashes for job in await stage.jobs()] == [1, 0, 0]


async def test_leases_that_ran_out_are_taken_back(stage: Stage) -> None:
    for _ in range(2):
        await do(stage, ExpireLeases(reason=BECAUSE))
        assert len(await stage.jobs(JobStatus.CLAIMED)) == 1
        await stage.clock.advance(seconds(61))

    await do(stage, ExpireLeases(reason=BECAUSE))

    assert len(await stage.jobs(JobStatus.CLAIMED)) == 0


async def test_a_new_worker_has_a_row_that_says_what_it_can_do(stage: Stage) -> None:
    await do(stage, SpawnJobWorker(worker_id=name(1), slot=1, group_count=3, reason=BECAUSE, capabilities=("gpu",)))

    row = await stage.store.workers.get(POOL, name(1))
    assert (row.status, row.slot, row.capabilities, row.provider) == (WorkerStatus.SPAWNING, 1, ("gpu",), "fake")
    assert stage.spawner.running(POOL) == [name(1)]


@pytest.mark.parametrize(
    "action",
    [
        release(),
        ExpireLeases(reason=BECAUSE),
        EndStray(worker_id=WorkerId("stray"), reason=BECAUSE),
        SpawnJobWorker(worker_id=name(1), slot=1, group_count=3, reason=BECAUSE),
    ],
    ids=lambda action: type(action).__name__,
)
async def test_a_fenced_checker_does_nothing(stage: Stage, action: Action) -> None:
    stage.spawner.end(POOL, name(0), -9)
    (row,) = await stage.workers()
    await stage.store.workers.move(row, WorkerStatus.LOST, BECAUSE)
    await stage.clock.advance(seconds(61))
    late = await lead(stage)
    await stage.store.leases.release(late)
    await lead(stage)
    before = await stage.jobs(), await stage.workers(live=False), stage.spawner.running(POOL)

    with pytest.raises(Fenced):
        await PoolActor(stage.store, stage.spawner, POOL).act(action, late.fence)

    assert (await stage.jobs(), await stage.workers(live=False), stage.spawner.running(POOL)) == before
