"""A pool whose workers are a fleet's: checkers and reapers take jobs back there, and leave workers and record to the fleet."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.beat import CHECK
from drumbeat.core.decision import Decision
from drumbeat.core.job import JobStatus
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.model import FleetPolicy, FleetState, PolicyName
from drumbeat.fleet.settings import read_policy
from drumbeat.pool.decide import decide, decide_recovery
from drumbeat.pool.model import Action, PoolView
from drumbeat.pool.observe import observe
from drumbeat.runtime.beat import BeatReport
from drumbeat.settings import Settings
from pool.seen import POOL, seconds
from pool.stage import Stage

OURS = FleetPolicy(policy=PolicyName.QUEUE_COVER, min_workers=0, max_workers=4)


async def scaled(**policy: object) -> Stage:
    return await Stage().open(**{**OURS.to_json(), **policy})


def plane(stage: Stage) -> ControlPlane:
    return ControlPlane(Settings(store="memory:", state_dir=Path("/dev/null/state")), stage.store, stage.clock)


async def fleet_beat(stage: Stage) -> BeatReport:
    loop = plane(stage).fleets.loop(POOL, stage.spawner, seconds(30))
    try:
        return await loop.beat()
    finally:
        await loop.resign()


def kinds(report: BeatReport) -> list[str]:
    return [action["type"] for action in report.actions]


async def test_a_check_starts_nobody_and_says_whose_the_workers_are() -> None:
    stage = await scaled()
    await stage.push(4)

    report = await stage.checker.check(POOL, max_workers=9)

    assert (kinds(report), stage.spawner.running(POOL)) == ([], [])
    assert report.why_not == "a fleet starts and ends the workers of this pool: drumbeat fleet beat papers; 4 jobs ready"
    assert (await stage.store.pools.get(POOL)).policy["max_workers"] == 4


async def test_a_row_that_waits_for_its_instance_elsewhere_is_not_started_here() -> None:
    stage = await scaled()
    await stage.push(1)
    await stage.store.workers.add([Worker(pool_id=POOL, worker_id=WorkerId("worker-0"), slot=0, provider="runpod")])
    await stage.clock.advance(seconds(60))

    await stage.checker.check(POOL)
    await stage.checker.reap(POOL)

    assert stage.spawner.running(POOL) == []
    assert [row.status for row in await stage.workers()] == [WorkerStatus.SPAWNING]


async def test_who_leaves_a_fleet_calls_nobody() -> None:
    stage = await scaled()
    await stage.push(3)

    await stage.checker.after_exit(POOL, jobs_done=1)

    assert (stage.spawner.running(POOL), await stage.workers(live=False)) == ([], [])


async def test_who_leaves_a_fleet_that_is_led_does_not_wait_for_its_controller() -> None:
    stage = await scaled()
    await stage.push(3)
    await stage.store.leases.acquire(POOL, "the fleet's controller", seconds(600))
    before = stage.clock.now()

    await stage.checker.after_exit(POOL, jobs_done=1)

    assert (stage.clock.now(), await stage.store.beats.last(POOL)) == (before, None)


@pytest.mark.parametrize("reaping", [False, True])
async def test_jobs_of_the_dead_are_taken_back_and_the_dead_left_to_the_fleet(reaping: bool) -> None:
    stage = await scaled()
    gone, silent = WorkerId("worker-0"), WorkerId("worker-1")
    await stage.push(3)
    for slot, worker in enumerate((gone, silent)):
        await stage.join(worker, slot)
        await stage.claim(worker, seconds(9999) if worker == gone else seconds(60))
    await stage.store.workers.move(await stage.store.workers.get(POOL, gone), WorkerStatus.LOST, "silent")
    await stage.clock.advance(seconds(9000))

    async def look() -> BeatReport:
        return (await stage.checker.reap(POOL))[POOL] if reaping else await stage.checker.check(POOL)

    first = await look()
    await stage.clock.advance(seconds(61))
    second = await look()

    assert (kinds(first), kinds(second)) == (["ReleaseJobs", "ExpireLeases"], ["ExpireLeases"])
    assert len(await stage.jobs(JobStatus.PENDING)) == 3
    rows = {row.worker_id: (row.status, row.reaped_at) for row in await stage.workers(live=False)}
    assert rows == {gone: (WorkerStatus.LOST, None), silent: (WorkerStatus.ACTIVE, None)}


async def test_a_check_leaves_the_fleets_record_alone() -> None:
    stage = await scaled()
    await stage.push(2)
    await fleet_beat(stage)
    desk = plane(stage).fleet(POOL)
    told, memory = await desk.explain(), (await desk.plan(stage.spawner)).inputs

    for _ in range(12):
        report = await stage.checker.check(POOL)
        assert report.summary["kind"] == CHECK

    status = await desk.status()
    assert status.last is not None
    assert status.last.n == 1
    assert await desk.explain() == told
    assert await desk.explain(await stage.store.now()) == told
    assert (await desk.plan(stage.spawner)).inputs == memory
    replayed = await desk.replay(seconds(600), {})
    assert (replayed.beats, replayed.same) == (1, 1)


async def test_the_next_fleets_beat_remembers_what_the_last_one_left() -> None:
    stage = await scaled()
    await stage.push(1)
    await fleet_beat(stage)
    left = (await stage.store.beats.list(POOL))[0].summary["state"]
    await stage.checker.check(POOL)
    await stage.clock.advance(seconds(30))

    beat = await fleet_beat(stage)

    assert beat.view is not None
    assert msgspec.convert(beat.view["state"], FleetState) == msgspec.convert(left, FleetState)
    assert beat.view["last"] is not None


async def test_a_checkers_beat_that_an_older_version_kept_is_passed_over() -> None:
    stage = await scaled()
    await stage.push(1)
    await fleet_beat(stage)
    told = await plane(stage).fleet(POOL).explain()
    plain = await Stage().open()
    await plain.checker.check(POOL)
    [old] = await plain.store.beats.list(POOL)
    for _ in range(3):
        await stage.clock.advance(seconds(1))
        await stage.store.beats.append(POOL, old)

    desk = plane(stage).fleet(POOL)

    assert await desk.explain() == told
    assert (await desk.replay(seconds(600), {})).beats == 1


async def test_a_ceiling_is_kept_whoever_checks() -> None:
    stage = await scaled(**read_policy({"policy": "queue_cover", "price_per_hour": 10, "max_per_hour": 0.01}).to_json())
    await stage.push(4)

    await stage.checker.check(POOL)
    await fleet_beat(stage)

    assert await stage.workers(live=False) == []


@pytest.mark.parametrize("deciding", [decide, decide_recovery])
async def test_nothing_is_decided_about_a_fleets_workers(deciding: Callable[[PoolView], Decision[Action]]) -> None:
    stage = await scaled()
    await stage.push(2)
    await stage.join(WorkerId("worker-0"))
    await stage.clock.advance(seconds(9000))
    view = await observe(stage.store, stage.spawner, POOL, seconds(0))

    assert list(deciding(view).actions) == []
