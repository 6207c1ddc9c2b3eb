"""Who pushes the jobs of schedules: checks, reapers, fleets, and workers that keep running; and what is said if nobody does."""

import asyncio
import logging
from datetime import timedelta
from pathlib import Path

import pytest

import drumbeat
from drumbeat import testing
from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.errors import StoreUnavailable
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.pool.schedules.service import Schedules
from drumbeat.pool.service import Pool
from drumbeat.pool.worker.handlers import describe
from drumbeat.pool.worker.options import Mode, WorkPlan
from drumbeat.settings import Settings
from pool.schedules.given import Planned
from pool.seen import POOL, seconds
from pool.stage import Stage

HOUR = timedelta(hours=1)
PATIENCE = 60  #: seconds for what a worker shall do


async def hourly(stage: Stage) -> Schedules:
    schedules = Pool(stage.store, stage.clock, POOL, "me").schedules
    await schedules.add("hourly", {"n": 1}, every=HOUR)
    await stage.clock.advance(HOUR)
    return schedules


async def test_a_check_pushes_the_due_job_and_starts_a_worker_for_it_in_the_same_beat() -> None:
    stage = await Stage().open()
    schedules = await hourly(stage)

    report = await stage.checker.check(POOL)

    assert [action["type"] for action in report.actions] == ["Spawn"]
    assert [job.payload for job in await stage.jobs()] == [{"n": 1}]
    assert (await schedules.get("hourly")).problem is None


async def test_a_reaper_pushes_the_due_job_too() -> None:
    stage = await Stage().open()
    await hourly(stage)

    await stage.checker.reap(POOL)
    await stage.checker.reap(POOL)

    assert len(await stage.jobs()) == 1


async def test_a_pool_without_schedules_costs_a_check_no_more_calls() -> None:
    stage = await Stage().open()
    calls, real = list[str](), stage.store.leases

    class Counting:
        def __getattr__(self, name: str) -> object:
            calls.append(name)
            return getattr(real, name)

    stage.store.leases = Counting()  # type: ignore[assignment]
    await stage.checker.check(POOL)

    assert "find" not in calls  # with which a check notes that it looks after the schedules


async def test_a_beat_goes_on_if_the_jobs_of_schedules_cannot_be_pushed(caplog: pytest.LogCaptureFixture) -> None:
    stage = await Stage().open()
    await hourly(stage)
    await stage.push(1)
    real = stage.store.queue.push

    async def refuse(*_: object) -> None:
        raise StoreUnavailable("full")

    stage.store.queue.push = refuse  # type: ignore[method-assign,assignment]
    with caplog.at_level(logging.WARNING):
        report = await stage.checker.check(POOL)
    stage.store.queue.push = real  # type: ignore[method-assign]

    assert [action["type"] for action in report.actions] == ["Spawn"]
    assert report.error is None
    assert f"failed to push the due jobs of schedules of {POOL}: full" in caplog.text
    await stage.checker.check(POOL)
    assert len(await stage.jobs()) == 2


async def test_a_beat_of_a_fleet_without_workers_pushes_the_due_job(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = FleetPolicy(policy=PolicyName.QUEUE_COVER, min_workers=0, max_workers=4)
    stage = await Stage().open(**policy.to_json())
    await hourly(stage)
    plane = ControlPlane(Settings(store="memory:", state_dir=Path("/dev/null/state")), stage.store, stage.clock)
    monkeypatch.setattr(plane, "spawner", lambda _: stage.spawner)

    report = await plane.fleets.beat(POOL)

    assert len(await stage.jobs()) == 1
    assert report.summary["wanted"] == 1


async def test_a_fleets_pool_is_watched_by_its_daemon_and_one_without_a_queue_is_not() -> None:
    from drumbeat.core.pool import PoolId, PoolKind, pool
    from drumbeat.pool.schedules.tick_pusher import TickPusher

    stage = await Stage().open()
    await stage.store.pools.create(pool("fleet", PoolKind.FLEET))
    await hourly(stage)
    ticks = TickPusher(stage.store, stage.clock, "daemon")

    await ticks.keep(PoolId("fleet"))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(ticks.keep(POOL))
        for _ in range(3):
            await stage.clock.advance(HOUR, settle=50)
        task.cancel()

    assert len(await stage.jobs()) >= 3


async def test_store_errors_do_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    from drumbeat.pool.schedules.tick_pusher import TickPusher

    stage = await Stage().open()
    await hourly(stage)
    real, failures = stage.store.pools.find, [StoreUnavailable("gone"), RuntimeError("a bug")]

    async def find(*given: object) -> object:
        if failures:
            raise failures.pop()
        return await real(*given)  # type: ignore[arg-type]

    stage.store.pools.find = find  # type: ignore[method-assign,assignment]
    async with asyncio.TaskGroup() as group:
        task = group.create_task(TickPusher(stage.store, stage.clock, "w").keep(POOL))
        for _ in range(3):
            await stage.clock.advance(seconds(20), settle=50)
        task.cancel()

    assert len(await stage.jobs()) == 1


@pytest.mark.parametrize("mode", [Mode.LOOP, Mode.DRAIN])
async def test_a_worker_pushes_and_runs_the_jobs_of_its_pools_schedules(tmp_path: Path, mode: Mode) -> None:
    ran = asyncio.Event()
    calls = list[object]()

    async def work(payload: object) -> None:
        calls.append(payload)
        if len(calls) >= (2 if mode is Mode.LOOP else 1):
            ran.set()

    settings = Settings(store=f"sqlite:///{tmp_path}/jobs.db", state_dir=tmp_path)
    async with open_control_plane(settings, create=True) as plane:
        pool, plan = plane.pool("mail"), Planned(plane.store)
        plan.store.time = await plane.store.now() - HOUR  # so one tick is due already
        await plan.schedules.add("often", "tick", every=1)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(plane.work("mail", WorkPlan(mode=mode), handlers={"": describe(work)}, signals=False))
            async with asyncio.timeout(PATIENCE):
                await ran.wait()
            if mode is Mode.LOOP:
                await plane.fleet("mail").drain([])
            done = await task

        assert done.finished == len(calls) == len(await pool.list(statuses=["done"]))
        assert {job.job_id.split("@")[0] for job in await pool.list()} == {"often"}


async def test_explain_tells_the_schedule_of_a_job_its_next_ticks_and_that_nobody_looks() -> None:
    stage = await Stage().open()
    await hourly(stage)
    await stage.checker.check(POOL)
    pool, job = Pool(stage.store, stage.clock, POOL, "me"), (await stage.jobs())[0]

    explained = await pool.explain(job.job_id)
    assert [reason.why for reason in explained.reasons[-2:]] == ["schedule", "schedule"]
    assert "of schedule hourly" in explained.reasons[-2].says
    assert explained.reasons[-1].says.count(":00:00") == 5
    await stage.clock.advance(HOUR)

    assert "no process has looked after the schedules" in (await pool.explain(job.job_id)).reasons[-1].says
    await pool.schedules.remove("hourly")
    assert "schedule" not in str(await pool.explain(job.job_id))


def test_schedules_can_be_used_without_an_event_loop(tmp_path: Path) -> None:
    with drumbeat.connect_blocking(f"sqlite:///{tmp_path}/jobs.db") as db:
        schedules = db.pool("mail").schedules
        schedules.add("nightly", cron="0 3 * * *", tz="Europe/Berlin")

        assert [each.name for each in schedules.list()] == ["nightly"]
        assert schedules.pause("nightly").paused


async def test_a_test_moves_the_clock_and_runs_the_jobs_of_schedules() -> None:
    async with testing.pool() as pool:
        await pool.schedules.add("hourly", {"n": 1}, every=HOUR, missed="all")
        await pool.clock.advance(HOUR * 3)
        await pool.push_due()

        assert len(await pool.run_until_empty(lambda payload: payload)) == 3
