"""Checks and reaps, one beat at a time, whoever else is at it."""

import asyncio
import json
import random
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.engine import ENGINE_IN_POLICY
from drumbeat.core.errors import InvalidInput, InvalidSettings, NotFound, StoreUnavailable
from drumbeat.core.job import JobStatus
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.pool.beats import beat_report
from drumbeat.pool.checker import Checker
from drumbeat.pool.decide import decide
from drumbeat.pool.model import PoolView
from drumbeat.runtime.beat import BeatReport, encode_action
from drumbeat.settings import Settings
from drumbeat.spawn.fake import AnswerLost, FakeSpawner, ListFails, ListOmits, SpawnFails
from drumbeat.store.interface import PoolChange
from pool.seen import LIMITS, POOL, name, seconds
from pool.stage import Stage


def kinds(report: BeatReport) -> list[str]:
    return [action["type"] for action in report.actions]


async def test_a_check_starts_workers_up_to_the_cap_and_keeps_the_cap() -> None:
    stage = await Stage().open()
    await stage.push(10)

    report = await stage.checker.check(POOL, max_workers=3)

    assert kinds(report) == ["Spawn"] * 3
    assert stage.spawner.running(POOL) == [name(0), name(1), name(2)]
    assert (await stage.store.pools.get(POOL)).policy == {"max_workers": 3}


async def test_a_second_check_sees_those_who_are_on_their_way() -> None:
    stage = await Stage().open()
    await stage.push(2)
    await stage.checker.check(POOL)

    again = await stage.checker.check(POOL)

    assert (kinds(again), again.why_not) == ([], "2 jobs ready and 2 of 2 slots are free")


async def test_a_cap_that_is_there_stays_if_none_is_given() -> None:
    stage = await Stage().open(max_workers=1, mode="once")
    await stage.push(5)

    await stage.checker.check(POOL)

    assert len(stage.spawner.running(POOL)) == 1
    assert (await stage.store.pools.get(POOL)).policy == {"max_workers": 1, "mode": "once"}


async def test_the_lease_is_given_back_after_each_beat() -> None:
    stage = await Stage().open()

    for _ in range(3):
        assert (await stage.checker.check(POOL)).led

    lease = await stage.store.leases.find(POOL)
    assert lease is not None
    assert (lease.epoch, lease.expires_at) == (3, stage.clock.now())


async def test_twenty_checkers_at_once_never_start_more_than_the_cap() -> None:
    stage = await Stage().open()
    await stage.push(50)

    async def check() -> BeatReport:
        return await stage.checker.check(POOL, max_workers=3)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(check()) for _ in range(20)]
        for _ in range(200):
            await stage.clock.advance(seconds(0.05))

    assert len(await stage.workers()) == 3
    assert len(stage.spawner.running(POOL)) == 3
    assert sum(kinds(task.result()).count("Spawn") for task in tasks) == 3
    assert all(task.result().led for task in tasks)


async def test_another_checker_that_takes_too_long_is_left_to_it() -> None:
    stage = await Stage().open()
    await stage.push(1)
    assert await stage.store.leases.acquire(POOL, "a slow one", timedelta(hours=1))

    async with asyncio.TaskGroup() as group:
        check = group.create_task(stage.checker.check(POOL, max_wait=seconds(3)))
        await stage.clock.advance(seconds(4))

    report = check.result()
    assert (report.led, report.error, kinds(report)) == (False, None, [])
    assert beat_report(report)["why_not"] == "another checker is running"
    assert stage.spawner.running(POOL) == []


async def test_where_the_lease_cannot_be_asked_for_the_stores_own_words_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = await Stage().open()

    async def acquire(*_: object) -> None:
        raise StoreUnavailable("database or disk is full")

    monkeypatch.setattr(stage.store.leases, "acquire", acquire)
    beat = beat_report(await stage.checker.check(POOL, max_wait=seconds(0)))

    assert (beat["led"], beat["why_not"], beat["error"]) == (False, None, "lease: database or disk is full")


async def test_jobs_that_their_groups_limit_holds_back_are_worth_no_workers() -> None:
    stage = await Stage().open(max_workers=4)
    await stage.push(6, group="g", group_limit=1)

    await stage.checker.check(POOL)
    await stage.checker.check(POOL)
    assert stage.spawner.running(POOL) == [name(0)]
    await stage.join(name(0))
    assert await stage.claim(name(0))
    await stage.checker.check(POOL)

    assert stage.spawner.running(POOL) == [name(0)]


async def test_jobs_of_a_type_without_a_handler_start_no_workers() -> None:
    stage = await Stage().open(handlers={"resize": "m:f"})
    await stage.push(12, type="x y")

    reports = [await stage.checker.check(POOL) for _ in range(6)]

    assert stage.spawner.running(POOL) == []
    expected = (
        "12 jobs of type 'x y' wait: no handler; add one with: drumbeat pool create papers --update --handler "
        "'x y=module:function'"
    )
    assert {report.why_not for report in reports} == {f"no job is ready; {expected}"}
    assert reports[-1].summary["no_handler"] == 12
    await stage.push(2, type="resize")
    assert kinds(await stage.checker.check(POOL)) == ["Spawn"] * 2


async def test_jobs_without_a_handler_that_come_back_from_the_dead_start_no_workers() -> None:
    stage = await Stage().open(handlers={"resize": "m:f"})
    await stage.push(1, type="x")
    await stage.join(name(0))
    await stage.claim(name(0))
    await stage.clock.advance(seconds(1000))

    report = await stage.checker.check(POOL)

    assert "ReleaseJobs" in kinds(report)
    assert "Spawn" not in kinds(report)


async def test_a_checker_that_was_killed_blocks_others_only_until_its_lease_runs_out() -> None:
    stage = await Stage().open()
    await stage.push(1)
    assert await stage.store.leases.acquire(POOL, "the dead", seconds(5))

    async with asyncio.TaskGroup() as group:
        check = group.create_task(stage.checker.check(POOL))
        await stage.clock.advance(seconds(6))

    assert kinds(check.result()) == ["Spawn"]


async def test_ten_jobs_are_done_by_three_at_a_time_without_another_check_than_those_of_the_leaving() -> None:
    stage = await Stage().open()
    await stage.push(10)
    await stage.checker.check(POOL, max_workers=3)

    for _ in range(20):
        for worker_id in await stage.spawned():
            await stage.join(worker_id)
            job = await stage.claim(worker_id)
            assert len(await stage.workers()) <= 3
            done = job is not None and await stage.finish(job)
            await stage.leave(worker_id)
            await stage.checker.after_exit(POOL, int(done))

    assert len(await stage.jobs(JobStatus.DONE)) == 10
    assert stage.spawner.running(POOL) == []
    assert len(await stage.workers(live=False)) == 10


async def test_a_worker_that_did_nothing_calls_nobody() -> None:
    stage = await Stage().open()
    await stage.push(1)

    await stage.checker.after_exit(POOL, 0)
    assert stage.spawner.running(POOL) == []
    await stage.checker.after_exit(POOL, 1)

    assert len(stage.spawner.running(POOL)) == 1


async def test_of_many_who_leave_at_once_one_checks_for_all() -> None:
    stage = await Stage().open(max_workers=5)
    await stage.push(50)
    held = await stage.store.leases.acquire(POOL, "somebody at it", seconds(5))
    assert held is not None

    async with asyncio.TaskGroup() as group:
        leaving = [group.create_task(stage.checker.after_exit(POOL, 1)) for _ in range(30)]
        await stage.clock.advance(seconds(6))

    assert all(task.done() for task in leaving)
    assert len(stage.spawner.running(POOL)) == 5
    assert len(await stage.store.beats.list(POOL)) == 1


async def test_who_leaves_after_a_check_began_to_look_makes_its_own() -> None:
    stage = await Stage().open(max_workers=1)
    await stage.push(2)

    for number in range(2):
        await stage.checker.after_exit(POOL, 1)
        await stage.join(name(number))
        await stage.leave(name(number))

    assert len(await stage.workers(live=False)) == 2


async def test_a_worker_that_leaves_an_empty_queue_makes_no_beat() -> None:
    stage = await Stage().open()

    await stage.checker.after_exit(POOL, 5)

    assert await stage.store.beats.last(POOL) is None


async def test_a_store_that_is_away_does_not_keep_a_worker_from_leaving() -> None:
    stage = await Stage().open()
    await stage.push(1)

    with stage.store.unavailable():
        await stage.checker.after_exit(POOL, 1)

    assert stage.spawner.running(POOL) == []


async def test_whoever_must_stay_for_the_workers_stays_until_the_last_has_gone() -> None:
    stage = await Stage().open()
    await stage.push(2)
    await stage.checker.check(POOL)

    async with asyncio.TaskGroup() as group:
        staying = group.create_task(stage.checker.stay(POOL))
        for number in range(2):
            await stage.clock.advance(seconds(60))
            assert not staying.done()
            stage.spawner.end(POOL, name(number), exit_code=0)
        await stage.clock.advance(seconds(1))

    assert staying.result() is True


@pytest.mark.parametrize(("engines", "here", "waits"), [("local,far", "local", True), ("far", "", False)])
async def test_workers_of_engines_elsewhere_are_not_stayed_for(engines: str, here: str, waits: bool) -> None:
    stage = await Stage().open()
    await stage.push(1)
    await stage.checker.check(POOL)
    await stage.store.pools.change(POOL, PoolChange(policy={ENGINE_IN_POLICY: engines}))
    opened: list[str] = []

    def open_spawner(names: str) -> FakeSpawner:
        opened.append(names)
        return stage.spawner

    checker = Checker(stage.store, stage.clock, lambda: "me", open_spawner, here={engines: here}.__getitem__)
    async with asyncio.TaskGroup() as group:
        staying = group.create_task(checker.stay(POOL, seconds(10)))
        await stage.clock.advance(seconds(1))
        assert staying.done() is not waits
        await stage.clock.advance(seconds(10))

    assert (staying.result(), opened) == (not waits, [here] if waits else [])


async def test_nobody_stays_longer_than_it_may() -> None:
    stage = await Stage().open()
    await stage.push(1)
    await stage.checker.check(POOL)

    async with asyncio.TaskGroup() as group:
        staying = group.create_task(stage.checker.stay(POOL, seconds(10)))
        await stage.clock.advance(seconds(11))

    assert staying.result() is False


async def test_a_job_that_kills_its_workers_is_poisoned_at_its_limit_and_worth_no_more_workers() -> None:
    stage = await Stage().open(max_workers=1)
    await stage.push(1, max_crashes=3)
    killed: list[WorkerId] = []

    for _ in range(6):
        await stage.checker.check(POOL)
        for worker_id in await stage.spawned():
            await stage.join(worker_id)
            await stage.claim(worker_id)
            stage.spawner.end(POOL, worker_id, exit_code=-9)
            killed.append(worker_id)

    (job,) = await stage.jobs()
    assert (job.status, job.crashes, job.attempts, len(killed)) == (JobStatus.POISONED, 3, 3, 3)


async def test_the_reaper_takes_back_jobs_in_every_pool_and_starts_nobody() -> None:
    stage = await Stage().open()
    other = PoolId("letters")
    await stage.store.pools.create(pool(other, PoolKind.JOBS, LIMITS))
    await stage.store.pools.create(pool("fleet", PoolKind.FLEET))
    await stage.push(1)
    await stage.join(name(0))
    job = await stage.claim(name(0), timedelta(hours=1))
    await stage.clock.advance(LIMITS.lost_after + seconds(1))

    reports = await stage.checker.reap()

    assert {pool_id: kinds(report) for pool_id, report in reports.items()} == {POOL: ["MarkLost", "ReleaseJobs"], other: []}
    assert (await stage.store.workers.get(POOL, name(0))).status is WorkerStatus.LOST
    assert job is not None
    assert await stage.finish(job) is False
    assert len(await stage.jobs(JobStatus.PENDING)) == 1
    assert stage.spawner.running(POOL) == []


async def test_a_cron_that_comes_once_an_hour_still_finds_the_lost() -> None:
    stage = await Stage().open()
    await stage.join(name(0))
    await stage.checker.check(POOL)
    await stage.clock.advance(timedelta(hours=1))

    assert kinds(await stage.checker.check(POOL)) == ["MarkLost"]


async def test_a_heartbeat_keeps_a_worker_alive() -> None:
    stage = await Stage().open()
    await stage.join(name(0))
    await stage.clock.advance(timedelta(hours=1))
    await stage.beat(name(0))

    assert kinds(await stage.checker.check(POOL)) == []


async def test_the_reaper_may_be_stricter_than_the_pool() -> None:
    stage = await Stage().open()
    await stage.join(name(0))
    await stage.clock.advance(seconds(46))

    usual = await stage.checker.reap(POOL)
    strict = await stage.checker.reap(POOL, lost_after=seconds(45))

    assert (kinds(usual[POOL]), kinds(strict[POOL])) == ([], ["MarkLost"])


async def test_but_not_stricter_than_a_heartbeat() -> None:
    stage = await Stage().open()

    with pytest.raises(InvalidInput, match=f"more than the 30 s between heartbeats of pool {POOL}, got 30 s"):
        await stage.checker.reap(POOL, lost_after=seconds(30))


async def test_of_all_pools_one_that_cannot_be_judged_so_soon_keeps_its_own_limit(caplog: pytest.LogCaptureFixture) -> None:
    stage = await Stage().open()
    slow = replace(LIMITS, heartbeat_every=seconds(60), stale_after=seconds(130), lost_after=seconds(300))
    await stage.store.pools.create(pool("slow", PoolKind.JOBS, slow))
    await stage.join(name(0))
    await stage.clock.advance(seconds(46))

    reports = await stage.checker.reap(lost_after=seconds(45))

    assert {pool_id: kinds(report) for pool_id, report in reports.items()} == {POOL: ["MarkLost"], "slow": []}
    assert "more than the 60 s between heartbeats of pool slow, got 45 s; using the pool's own lost_after" in caplog.text


async def test_a_paused_pool_starts_nobody_and_recovers() -> None:
    stage = await Stage().open()
    await stage.push(2)
    await stage.join(name(0))
    await stage.claim(name(0))
    await stage.clock.advance(timedelta(hours=1))
    await stage.store.pools.change(POOL, PoolChange(paused_until=stage.clock.now() + timedelta(hours=1)))

    report = await stage.checker.check(POOL)

    assert kinds(report) == ["MarkLost", "ReleaseJobs"]
    assert (await stage.checker.check(POOL)).actions[0]["type"] == "Reap"
    assert (await stage.checker.check(POOL)).why_not == "paused until 2026-01-01 02:00:00: 2 jobs ready"


async def test_what_a_provider_refuses_is_told_and_tried_again() -> None:
    stage = await Stage().open()
    await stage.push(1)
    stage.spawner.faults.append(SpawnFails(reason="no room"))

    failed = await stage.checker.check(POOL)
    again = await stage.checker.check(POOL)

    assert "no room" in failed.actions[0]["error"]
    assert kinds(again) == ["Spawn"]
    assert stage.spawner.running(POOL) == [name(0)], "the row of the worker that was refused is used"


@pytest.mark.parametrize(
    ("name_given", "error"), [("nobody", NotFound), ("fleet", InvalidInput)], ids=["an unknown pool", "a fleet"]
)
async def test_only_pools_of_jobs_are_checked(name_given: str, error: type[Exception]) -> None:
    stage = await Stage().open()
    await stage.store.pools.create(pool("fleet", PoolKind.FLEET))

    for call in (stage.checker.check(PoolId(name_given)), stage.checker.reap(PoolId(name_given))):
        with pytest.raises(error):
            await call


async def test_a_cap_below_nothing_is_refused_and_not_kept() -> None:
    stage = await Stage().open()

    with pytest.raises(InvalidSettings):
        await stage.checker.check(POOL, max_workers=-1)

    assert (await stage.store.pools.get(POOL)).policy == {}


async def test_a_process_that_runs_anyway_beats_again_and_again() -> None:
    stage = await Stage().open(max_workers=2)
    plane, stop = ControlPlane(Settings(), stage.store, stage.clock), asyncio.Event()

    async with asyncio.TaskGroup() as group:
        group.create_task(plane.pool_loop(POOL, stage.spawner, seconds(1)).run(stop))
        await stage.clock.advance(seconds(2))
        assert stage.spawner.running(POOL) == []
        await stage.push(5)
        await stage.clock.advance(seconds(2))
        stop.set()

    assert len(stage.spawner.running(POOL)) == 2
    assert (await stage.checker.check(POOL)).led


async def test_every_beat_can_be_read_again() -> None:
    stage = await Stage().open()
    await stage.push(1)
    await stage.checker.check(POOL)

    beat = await stage.store.beats.last(POOL)

    assert beat is not None
    assert beat.view is not None
    assert (beat.n, beat.view["demand"], beat.summary["spawned"]) == (1, {"": 1}, 1)
    assert beat.actions[0]["reason"] == "1 job ready, 0 of 0 slots are free, 10 more workers are allowed"


async def test_every_beat_can_be_decided_again_from_its_row() -> None:
    stage = await Stage().open(max_workers=2, capabilities=["gpu"])
    await stage.push(3, capability="gpu")
    await stage.checker.check(POOL)
    await stage.join(name(0))
    await stage.claim(name(0))
    await stage.clock.advance(timedelta(hours=1))
    await stage.checker.check(POOL)
    await stage.checker.check(POOL)

    for beat in await stage.store.beats.list(POOL):
        view = msgspec.convert(json.loads(json.dumps(beat.view)), PoolView)
        decision = decide(view)
        assert [json.loads(json.dumps(encode_action(action))) for action in decision.actions] == [
            json.loads(json.dumps(action)) for action in beat.actions
        ]
        assert (decision.why_not, decision.summary) == (beat.why_not, beat.summary)


async def test_a_silent_worker_is_ended_before_another_takes_its_place_within_one_check() -> None:
    stage = await Stage().open(max_workers=1)
    await stage.push(2)
    await stage.checker.check(POOL)
    await stage.join(name(0))
    await stage.claim(name(0))
    await stage.clock.advance(LIMITS.stale_after + seconds(1))
    await stage.checker.check(POOL)
    await stage.clock.advance(LIMITS.stale_after)

    report = await stage.checker.check(POOL)

    assert kinds(report) == ["MarkLost", "ReleaseJobs", "Reap", "Spawn"]
    assert stage.spawner.running(POOL) == [name(1)]


FAULTS = (SpawnFails(), AnswerLost(started=True), AnswerLost(started=False), ListFails(), ListOmits())


@pytest.mark.parametrize("seed", range(10))
async def test_whatever_goes_wrong_there_are_never_more_workers_than_the_cap(seed: int) -> None:
    chance, stage = random.Random(seed), await Stage().open(max_workers=3)
    await stage.push(40)

    for _ in range(60):
        if chance.random() < 0.3:
            stage.spawner.faults.append(chance.choice(FAULTS))
        async with asyncio.TaskGroup() as group:
            for _ in range(chance.randint(1, 3)):
                group.create_task(stage.checker.check(POOL))
            await stage.clock.advance(seconds(1))
        assert len(await stage.workers()) <= 3
        assert len(stage.spawner.running(POOL)) <= 3
        await _live_a_little(stage, chance)
        await stage.clock.advance(seconds(chance.choice((1, 20, 200))))

    assert len(await stage.jobs(JobStatus.DONE)) > 10


async def _live_a_little(stage: Stage, chance: random.Random) -> None:
    """Those whose instance runs join, work, and leave or are killed in the middle of it."""
    for worker_id in set(await stage.spawned()) & set(stage.spawner.running(POOL)):
        await stage.join(worker_id)
        job = await stage.claim(worker_id)
        if job is None or chance.random() < 0.2:
            stage.spawner.end(POOL, worker_id, exit_code=-9)
        else:
            assert await stage.finish(job)
            await stage.leave(worker_id)
