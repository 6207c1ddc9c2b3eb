"""Which ends of a worker are charged to the jobs it had begun: only those that a job may have caused."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from drumbeat.core.job import AttemptOutcome, JobStatus, NewJob
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.recovery import MarkFailed, recover
from drumbeat.core.worker import ExitCode, Holder, WorkerId, WorkerStatus
from drumbeat.fleet.service import FleetService
from drumbeat.pool.checker import Checker
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store.interface import ClaimRequest, JoinRequest, WorkerChange
from pool.seen import LIMITS, NOW, POOL, is_over, name, seconds, view, worker
from pool.stage import LEASE, Stage
from pool.working import Shop

W = name(0)
OTHERS = (PoolId("p2"), PoolId("p3"))

End = Callable[[Stage, WorkerId], Awaitable[None]]


async def three_pools() -> Stage:
    """Three pools, each with a worker of the same id that runs the pool's only job. The checker has started the first's."""
    stage = await Stage().open(max_workers=1)
    await stage.push(1, max_crashes=3)
    for other in OTHERS:
        await stage.store.pools.create(pool(other, PoolKind.JOBS, LIMITS))
        await stage.store.queue.push(other, [NewJob(payload=other, max_crashes=1)])
        await stage.store.membership.join(JoinRequest(pool_id=other, worker_id=W, slot=0, instance=W, host="h", pid=1))
        held = Holder(pool_id=other, worker_id=W, instance=W)
        assert await stage.store.queue.claim(ClaimRequest(pool_id=other, holder=held, lease=LEASE * 1000))
    return stage


async def begun(stage: Stage) -> WorkerId:
    """The checker starts a worker, which takes the job."""
    await stage.checker.check(POOL)
    [worker_id] = await stage.spawned()
    await stage.join(worker_id)
    assert await stage.claim(worker_id, LEASE * 1000)
    return worker_id


async def watched(stage: Stage, duration: float, every: float = 20) -> None:
    """Time passes, and a beat of the checker comes every so many seconds."""
    for _ in range(int(duration / every)):
        await stage.clock.advance(seconds(every))
        await stage.checker.check(POOL)


async def untouched(stage: Stage) -> bool:
    jobs = [job for other in OTHERS for job in await stage.store.jobs.list(other)]
    return [(job.status, job.crashes, job.suspicions) for job in jobs] == [(JobStatus.CLAIMED, 0, 0)] * len(OTHERS)


def exits(code: int, *, silent: float = 10, leaving: bool = False) -> End:
    """Its process ends, so many seconds after its last heartbeat."""

    async def end(stage: Stage, worker_id: WorkerId) -> None:
        if leaving:
            await stage.store.workers.ask_to_drain(POOL, [worker_id], "scale down", seconds(600))
        await stage.beat(worker_id)
        await watched(stage, silent, 10)
        stage.spawner.end(POOL, worker_id, code)

    return end


def records(code: ExitCode) -> End:
    """It records its end itself, but not the outcome of its job."""

    async def end(stage: Stage, worker_id: WorkerId) -> None:
        to = WorkerStatus.TERMINATED if code is ExitCode.CLEAN else WorkerStatus.ERROR
        await stage.store.membership.move(POOL, worker_id, worker_id, to, "it ends", WorkerChange(exit_code=code))
        stage.spawner.end(POOL, worker_id, code)

    return end


def freezes(*, leaving: bool = False, every: float = 20) -> End:
    """Its process runs, but it sends no heartbeat."""

    async def end(stage: Stage, worker_id: WorkerId) -> None:
        if leaving:
            await stage.store.workers.ask_to_drain(POOL, [worker_id], "scale down", seconds(600))
        await watched(stage, 2 * max(LIMITS.lost_after.total_seconds(), every), every)

    return end


async def is_overdue(stage: Stage, worker_id: WorkerId) -> None:
    """It sends heartbeats, but is not done when its time to drain is over."""
    await stage.store.workers.ask_to_drain(POOL, [worker_id], "scale down", seconds(60))
    for _ in range(4):
        await watched(stage, 20)
        if (await stage.store.workers.get(POOL, worker_id)).is_live:
            await stage.beat(worker_id)


async def is_killed(stage: Stage, worker_id: WorkerId) -> None:
    await FleetService(stage.store, POOL, lambda settings: {}).kill(worker_id, stage.spawner)


LOST_STORE = LIMITS.give_up_after.total_seconds()

CHARGED: dict[str, tuple[End, bool]] = {
    "killed by a signal": (exits(-9), True),
    "killed by a signal, a while ago": (exits(-9, silent=LOST_STORE), True),
    "cut off from the store for too long": (exits(ExitCode.STORE_LOST, silent=LOST_STORE), False),
    "ended by its job as if cut off": (exits(ExitCode.STORE_LOST), True),
    "stopped while cut off from the store": (exits(ExitCode.CLEAN, silent=LOST_STORE), False),
    "ended by its job without an error": (exits(ExitCode.CLEAN), True),
    "ended by its job as if without a controller": (exits(ExitCode.CONTROLLER_GONE), True),
    "failed": (exits(ExitCode.FATAL, silent=LOST_STORE), True),
    "killed while it was leaving": (exits(-9, leaving=True), False),
    "gone while it was leaving": (exits(ExitCode.CLEAN, leaving=True), False),
    "recorded that it left": (records(ExitCode.CLEAN), False),
    "recorded that it lost the store": (records(ExitCode.STORE_LOST), False),
    "recorded that no controller is there": (records(ExitCode.CONTROLLER_GONE), False),
    "recorded that it failed": (records(ExitCode.FATAL), True),
    "frozen": (freezes(), True),
    "frozen, with a beat every ten minutes": (freezes(every=600), True),
    "frozen while it was leaving": (freezes(leaving=True), False),
    "not done in time to leave": (is_overdue, False),
    "killed by hand": (is_killed, False),
}


@pytest.mark.parametrize(("end", "charged"), CHARGED.values(), ids=CHARGED)
async def test_only_an_end_that_a_job_may_have_caused_is_charged(end: End, charged: bool) -> None:
    stage, most = await three_pools(), 3

    for number in range(1, most + 1):
        worker_id = await begun(stage)
        await end(stage, worker_id)
        await stage.checker.reap(POOL)

        [job] = await stage.jobs()
        poisoned = charged and number == most
        assert (job.status, job.crashes) == (
            JobStatus.POISONED if poisoned else JobStatus.PENDING,
            number if charged else 0,
        )
        assert job.attempts == job.crashes
        last = (await stage.store.jobs.attempts(job.job_id))[-1]
        assert last.outcome is (AttemptOutcome.CRASHED if charged else AttemptOutcome.RELEASED)
        assert last.error
        for row in await stage.workers():  # the next worker, if a beat has started it
            await stage.store.workers.move(row, WorkerStatus.TERMINATED, "the test goes on")
        await stage.checker.reap(POOL)

    assert await untouched(stage)


async def test_a_suspended_machine_costs_no_worker_and_no_crash() -> None:
    stage = await three_pools()
    worker_id = await begun(stage)

    for _ in range(4):
        await stage.clock.advance(seconds(3600))
        report = await stage.checker.check(POOL)
        assert report.summary["spared"] == 1
        await stage.clock.advance(seconds(20))
        await stage.checker.check(POOL)
        await stage.beat(worker_id)
        await watched(stage, 20)

    [job] = await stage.jobs()
    assert (job.status, job.crashes, job.attempts, job.lease_owner) == (JobStatus.CLAIMED, 0, 1, worker_id)
    assert await untouched(stage)


@pytest.mark.parametrize("every", [10, 600, 4000])
async def test_a_frozen_worker_is_lost_though_nobody_watched_when_it_froze(every: float) -> None:
    stage = await three_pools()
    worker_id = await begun(stage)
    await stage.clock.advance(seconds(3600))

    await stage.checker.check(POOL)
    spared = (await stage.store.workers.get(POOL, worker_id)).status
    await watched(stage, max(every, 60), every)

    [job] = await stage.jobs()
    assert (spared, (await stage.store.workers.get(POOL, worker_id)).status) == (WorkerStatus.ACTIVE, WorkerStatus.LOST)
    assert (job.status, job.crashes) == (JobStatus.PENDING, 1)


async def test_who_names_a_limit_waits_for_no_heartbeat() -> None:
    stage = await three_pools()
    worker_id = await begun(stage)
    await stage.clock.advance(seconds(3600))

    await stage.checker.reap(POOL, lost_after=LIMITS.lost_after)

    assert (await stage.store.workers.get(POOL, worker_id)).status is WorkerStatus.LOST


@pytest.mark.parametrize("ready", [0, 1])
async def test_a_pool_with_a_spared_worker_and_a_ready_job_is_checked_again(ready: int) -> None:
    stage = await three_pools()
    await begun(stage)
    await stage.push(ready)
    await stage.clock.advance(seconds(3600))
    watching: list[PoolId] = []

    async def watch(pool_id: PoolId) -> None:
        watching.append(pool_id)

    await Checker(stage.store, stage.clock, lambda: "c", lambda engine: stage.spawner, watch).check(POOL)

    assert watching == [POOL] * ready


async def test_a_long_job_survives_any_number_of_drains() -> None:
    """The worker learns of each drain at its next heartbeat, and leaves by the deadline in its row."""
    shop = await Shop().opened()
    checker = Checker(shop.store, shop.clock, iter(map(str, range(9999))).__next__, lambda engine: FakeSpawner(shop.clock))
    [job_id] = await shop.store.queue.push(POOL, [NewJob(payload=1)])

    async def long(payload: object) -> None:
        await shop.clock.sleep(seconds(36000))

    for turn in range(4):
        worker_id = WorkerId(f"w{turn}")
        async with asyncio.TaskGroup() as group:
            life = group.create_task(shop.life(shop.workload(long, worker_id=worker_id), worker_id).run())
            await shop.begun(worker_id)
            await shop.passes(1)
            assert (await shop.job(job_id)).lease_owner == worker_id
            await shop.store.workers.ask_to_drain(POOL, [worker_id], "by hand", seconds(60))
            for _ in range(40):
                await shop.passes(5)
                await checker.reap(POOL)
        row, job = await shop.store.workers.get(POOL, worker_id), await shop.job(job_id)

        assert (life.result(), row.status, row.error) == (ExitCode.CLEAN, WorkerStatus.TERMINATED, None)
        assert (job.status, job.attempts, job.crashes) == (JobStatus.PENDING, 0, 0)


@pytest.mark.parametrize(("silent", "charged"), [(130, False), (10, True)])
def test_a_worker_that_no_controller_watched_may_have_ended_for_that(silent: float, charged: bool) -> None:
    left = view(worker(0, silent=silent), instances=(is_over(0, ExitCode.CONTROLLER_GONE),), looking_since=NOW - seconds(20))

    [closed] = recover(left.snapshot).actions

    assert isinstance(closed, MarkFailed)
    assert closed.is_crash is charged


def test_a_workers_row_tells_whether_it_crashed() -> None:
    row = worker(0, WorkerStatus.LOST)

    assert row.has_crashed
    assert not replace(row, meta={"crash": False}).has_crashed
    assert not replace(row, status=WorkerStatus.TERMINATED).has_crashed
    assert replace(row, status=WorkerStatus.TERMINATED, meta={"crash": True}).has_crashed
