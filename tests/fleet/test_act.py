"""Doing what was decided: rows first, then the provider; asking twice is asking once; a fenced controller does nothing."""

import contextlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import (
    AlreadyExists,
    DrumbeatError,
    Fenced,
    Refused,
    SpawnAmbiguous,
    SpawnError,
    SpawnFailed,
    StaleWrite,
)
from drumbeat.core.event import EventType, start
from drumbeat.core.job import JobStatus, NewJob
from drumbeat.core.lease import Fence, Lease
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.act import FleetActor
from drumbeat.fleet.decide import decide
from drumbeat.fleet.model import (
    Action,
    AskToDrain,
    EndOverdue,
    EndStray,
    ExpandVolume,
    ExpireJobs,
    Fail,
    FleetPolicy,
    MarkFailed,
    MarkLost,
    NoteInstance,
    Reap,
    ReleaseJobs,
    SetTarget,
    Spawn,
)
from drumbeat.fleet.observe import observe
from drumbeat.spawn.fake import AnswerLost, FakeSpawner, SpawnFails, TerminateRefused
from drumbeat.spawn.interface import Order
from drumbeat.spawn.local import LocalSpawner
from drumbeat.store.contract.given import active, added
from drumbeat.store.interface import ClaimRequest
from drumbeat.store.memory import MemoryStore
from fleet.given import POOL, seconds

W0, W1, W7, STRAY = WorkerId("worker-0"), WorkerId("worker-1"), WorkerId("worker-7"), WorkerId("stray")
BECAUSE = "the test says so"


@dataclass(slots=True, kw_only=True)
class Stage:
    """A pool with an active worker-0, an unjoined worker-1, a lost one and a stray, and a controller that leads it."""

    store: MemoryStore
    spawner: FakeSpawner
    lease: Lease
    working: Worker
    unjoined: Worker
    gone: Worker

    @property
    def actor(self) -> FleetActor:
        return FleetActor(self.store, self.spawner, POOL)

    async def do(self, action: Action, fence: Fence | None = None) -> None:
        await self.actor.act(action, fence or self.lease.fence)

    async def row(self, worker_id: WorkerId) -> Worker:
        return await self.store.workers.get(POOL, worker_id)

    async def told(self) -> list[str]:
        return [event.type for event in await self.store.events.read(POOL, 0)]

    async def everything(self) -> tuple[Any, ...]:
        """All that an action could have changed."""
        volumes = dict(self.spawner.volumes)
        rows, jobs = await self.store.workers.list(POOL), await self.store.jobs.list(POOL)
        return rows, jobs, await self.store.events.read(POOL, 0), self.spawner.running(POOL), volumes


@pytest.fixture
async def stage() -> Stage:
    clock = ManualClock()
    store, spawner = MemoryStore(clock), FakeSpawner(clock, volumes={"vol1": 100})
    home = await store.pools.create(pool(POOL, PoolKind.JOBS, **FleetPolicy(workers=2, target=1).to_json()))
    lease = await store.leases.acquire(POOL, "me", seconds(3600))
    assert lease is not None
    working, unjoined = await active(store, home, W0), await added(store, home, W1)
    going = await active(store, home, WorkerId("worker-2"))
    await store.queue.push(POOL, [NewJob(payload=n) for n in range(2)])
    for row, lease_for in ((going, seconds(3600)), (working, seconds(1))):
        await store.queue.claim(ClaimRequest(pool_id=POOL, holder=row.holder, lease=lease_for))
    gone = await store.workers.move(going, WorkerStatus.LOST, "silent")
    for name in (W0, gone.worker_id, STRAY):
        await spawner.spawn(Order(pool_id=POOL, worker_id=name, slot=0, group_count=1))
    await clock.advance(seconds(2))
    return Stage(store=store, spawner=spawner, lease=lease, working=working, unjoined=unjoined, gone=gone)


def spawn(name: WorkerId = W7, slot: int = 1, is_new: bool = True) -> Spawn:
    return Spawn(worker_id=name, slot=slot, group_count=2, reason=BECAUSE, is_new=is_new)


def expand(volume: str = "vol1", to_gb: int = 150) -> ExpandVolume:
    return ExpandVolume(worker_id=W0, volume=volume, to_gb=to_gb, seen_gb=100, reason=BECAUSE)


def actions(stage: Stage) -> dict[str, Action]:
    """One of each kind that can be done on this stage."""
    return {
        "MarkLost": MarkLost(worker=stage.working, reason=BECAUSE),
        "MarkFailed": MarkFailed(worker=stage.working, exit_code=-9, reason=BECAUSE),
        "Fail": Fail(worker=stage.working, reason=BECAUSE, rule="stuck"),
        "ReleaseJobs": ReleaseJobs(worker_id=stage.gone.worker_id, reason=BECAUSE),
        "ExpireJobs": ExpireJobs(reason=BECAUSE),
        "EndOverdue": EndOverdue(worker=stage.working, reason=BECAUSE),
        "Reap": Reap(worker_id=stage.gone.worker_id, reason=BECAUSE),
        "EndStray": EndStray(worker_id=STRAY, reason=BECAUSE),
        "Spawn a new one": spawn(),
        "Spawn an unstarted one": spawn(W1, is_new=False),
        "NoteInstance": NoteInstance(worker_id=W1, ref="pod-7", reason=BECAUSE),
        "SetTarget": SetTarget(worker_id=W0, target=5, ramp=seconds(2), reason=BECAUSE),
        "AskToDrain": AskToDrain(worker_id=W0, within=seconds(30), reason=BECAUSE),
        "ExpandVolume": expand(),
    }


KINDS = (
    "MarkLost",
    "MarkFailed",
    "Fail",
    "ReleaseJobs",
    "ExpireJobs",
    "EndOverdue",
    "Reap",
    "EndStray",
    "Spawn a new one",
    "Spawn an unstarted one",
    "NoteInstance",
    "SetTarget",
    "AskToDrain",
    "ExpandVolume",
)


async def test_there_is_a_way_to_do_every_kind(stage: Stage) -> None:
    closing, jobs = {MarkLost, MarkFailed, Fail, EndOverdue}, {ReleaseJobs, ExpireJobs}
    every = {*closing, *jobs, Reap, EndStray, Spawn, NoteInstance, SetTarget, AskToDrain, ExpandVolume}

    assert set(actions(stage)) == set(KINDS)
    assert {type(action) for action in actions(stage).values()} == every
    with pytest.raises(TypeError, match="unknown recovery action object"):
        await stage.do(object())  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
async def test_every_action_changes_something(stage: Stage, kind: str) -> None:
    before = await stage.everything()

    await stage.do(actions(stage)[kind])

    assert await stage.everything() != before


@pytest.mark.parametrize("kind", KINDS)
async def test_a_fenced_action_is_refused_and_changes_nothing(stage: Stage, kind: str) -> None:
    await stage.store.leases.release(stage.lease)
    assert await stage.store.leases.acquire(POOL, "another", seconds(60)) is not None
    before = await stage.everything()

    with pytest.raises(Fenced):
        await stage.do(actions(stage)[kind])

    assert await stage.everything() == before


async def test_a_worker_that_is_heard_again_keeps_its_jobs(stage: Stage) -> None:
    before = await stage.store.jobs.list(POOL)

    with pytest.raises(StaleWrite, match="again and keeps its jobs"):
        await stage.do(ReleaseJobs(worker_id=W0, reason=BECAUSE))

    assert await stage.store.jobs.list(POOL) == before


@pytest.mark.parametrize(("kind", "charged"), [("MarkLost", True), ("MarkFailed", True), ("Fail", True), ("EndOverdue", False)])
async def test_a_worker_that_the_fleet_ended_for_being_overdue_costs_its_job_nothing(
    stage: Stage, kind: str, charged: bool
) -> None:
    others = [await stage.store.pools.create(pool(PoolId(f"p{n}"), PoolKind.JOBS)) for n in range(2)]
    for other in others:
        await stage.store.queue.push(other.pool_id, [NewJob(payload=1)])
        holder = (await active(stage.store, other, W0)).holder
        await stage.store.queue.claim(ClaimRequest(pool_id=other.pool_id, holder=holder, lease=seconds(3600)))

    await stage.do(actions(stage)[kind])
    await stage.do(ReleaseJobs(worker_id=W0, reason=BECAUSE))

    job = (await stage.store.jobs.list(POOL))[1]
    assert (job.status, job.crashes, job.attempts) == (JobStatus.PENDING, charged, charged)
    theirs = [job for other in others for job in await stage.store.jobs.list(other.pool_id)]
    assert [(job.status, job.attempts) for job in theirs] == [(JobStatus.CLAIMED, 1)] * 2


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "SetTarget"])
async def test_asking_twice_is_asking_once(stage: Stage, kind: str) -> None:
    action = actions(stage)[kind]
    await stage.do(action)
    once = await stage.everything()

    with contextlib.suppress(Refused, AlreadyExists):
        await stage.do(action)

    assert await stage.everything() == once


async def test_a_target_told_twice_is_the_same_target(stage: Stage) -> None:
    for _ in range(2):
        await stage.do(SetTarget(worker_id=W0, target=5, ramp=seconds(2), reason=BECAUSE))

    assert (await stage.row(W0)).target == 5


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "EndStray"])
async def test_an_action_whose_answer_was_lost_may_be_done_again(stage: Stage, kind: str) -> None:
    """The write happened and nobody heard: the next beat looks again, and what it then decides ends the same."""
    stage.store.fail_next(kept=True)
    with pytest.raises(DrumbeatError):
        await stage.do(actions(stage)[kind])

    view = await observe(stage.store, stage.spawner, POOL, seconds(0))
    for action in decide(view).actions:
        await stage.do(action)

    assert sorted(stage.spawner.running(POOL)) == sorted(set(stage.spawner.running(POOL)))
    assert len(await stage.store.workers.list(POOL)) == len({row.worker_id for row in await stage.store.workers.list(POOL)})


async def test_a_lost_worker_is_closed_with_the_reason(stage: Stage) -> None:
    await stage.do(MarkLost(worker=stage.working, reason="silent for 301 s"))

    assert (await stage.row(W0)).status is WorkerStatus.LOST
    moved = (await stage.store.events.read(POOL, 0))[-1]
    assert (moved.type, moved.payload["to"], moved.payload["reason"]) == (EventType.WORKER_MOVED, "lost", "silent for 301 s")


async def test_a_worker_that_was_heard_of_since_is_not_closed(stage: Stage) -> None:
    seen = replace(stage.working, heartbeat_count=stage.working.heartbeat_count - 1)

    for action in (MarkLost(worker=seen, reason=BECAUSE), EndOverdue(worker=seen, reason=BECAUSE)):
        with pytest.raises(Refused):
            await stage.do(action)

    assert (await stage.row(W0)).is_live


@pytest.mark.parametrize(
    ("exit_code", "status", "error"),
    [(0, WorkerStatus.TERMINATED, None), (-9, WorkerStatus.ERROR, BECAUSE), (None, WorkerStatus.ERROR, BECAUSE)],
)
async def test_how_an_instance_ended_is_kept(
    stage: Stage, exit_code: int | None, status: WorkerStatus, error: str | None
) -> None:
    await stage.do(MarkFailed(worker=stage.working, exit_code=exit_code, reason=BECAUSE))

    row = await stage.row(W0)
    assert (row.status, row.exit_code, row.error) == (status, exit_code, error)


async def test_an_overdue_worker_is_closed_and_marked(stage: Stage) -> None:
    await stage.do(EndOverdue(worker=stage.working, reason="did not drain by 12:00:00"))

    row = await stage.row(W0)
    assert (row.status, row.error) == (WorkerStatus.TERMINATED, "did not drain by 12:00:00")
    assert row.meta["drain_timed_out"] is True


async def test_reaping_ends_the_instance_before_it_says_so(stage: Stage) -> None:
    stage.spawner.faults.append(TerminateRefused())
    reap = Reap(worker_id=stage.gone.worker_id, reason=BECAUSE)

    with pytest.raises(SpawnError):
        await stage.do(reap)
    assert (await stage.row(stage.gone.worker_id)).reaped_at is None
    await stage.do(reap)

    assert (await stage.row(stage.gone.worker_id)).reaped_at is not None
    assert stage.gone.worker_id not in stage.spawner.running(POOL)


async def test_a_live_worker_is_never_marked_as_reaped(stage: Stage) -> None:
    with pytest.raises(Refused):
        await stage.do(Reap(worker_id=W1, reason=BECAUSE))

    assert (await stage.row(W1)).reaped_at is None


async def test_a_stray_is_ended(stage: Stage) -> None:
    assert STRAY in stage.spawner.running(POOL)

    await stage.do(EndStray(worker_id=STRAY, reason=BECAUSE))

    assert STRAY not in stage.spawner.running(POOL)


async def test_a_worker_is_told_its_target_and_its_ramp(stage: Stage) -> None:
    await stage.do(SetTarget(worker_id=W0, target=5, ramp=seconds(2), reason="more"))

    event = (await stage.store.events.read(POOL, 0))[-1]
    assert (event.type, event.worker_id) == (EventType.SET_WORKER_TARGET, W0)
    assert event.payload == {"target_connections": 5, "ramp_seconds": 2.0, "reason": "more"}


async def test_a_worker_is_asked_to_drain_once(stage: Stage) -> None:
    for _ in range(2):
        await stage.do(AskToDrain(worker_id=W0, within=seconds(30), reason="too many"))

    now = await stage.store.now()
    assert (await stage.row(W0)).drain_deadline == now + seconds(30)
    assert (await stage.told()).count(EventType.STOP) == 1


async def test_a_new_worker_has_a_row_and_an_instance(stage: Stage) -> None:
    await stage.do(spawn(W7, slot=1))

    row = await stage.row(W7)
    assert (row.status, row.slot, row.provider) == (WorkerStatus.SPAWNING, 1, "fake")
    assert "worker-7" in stage.spawner.running(POOL)


async def test_the_row_is_there_before_the_provider_is_asked(stage: Stage) -> None:
    stage.store.fail_next()

    with pytest.raises(DrumbeatError):
        await stage.do(spawn(W7))

    assert stage.spawner.asked("spawn").count(W7) == 0


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_worker_that_could_not_be_started_leaves_without_blame(stage: Stage, is_new: bool) -> None:
    name = W7 if is_new else W1
    stage.spawner.faults.append(SpawnFails(reason="no capacity in this zone"))

    with pytest.raises(SpawnFailed, match="no capacity in this zone"):
        await stage.do(spawn(name, is_new=is_new))

    row = await stage.row(name)
    assert (row.status, row.meta["spawn_failed"]) == (WorkerStatus.TERMINATED, True)
    assert row.error is not None
    assert "no capacity in this zone" in row.error
    assert name not in stage.spawner.running(POOL)


async def test_a_worker_that_joined_though_its_start_was_said_to_fail_lives_on(stage: Stage) -> None:
    stage.spawner.faults.append(SpawnFails())

    with pytest.raises(SpawnFailed):
        await stage.do(spawn(W0, is_new=False))

    assert await stage.row(W0) == stage.working


@pytest.mark.parametrize("started", [True, False])
async def test_a_start_without_an_answer_is_not_made_twice(stage: Stage, started: bool) -> None:
    stage.spawner.faults.append(AnswerLost(started=started))
    with pytest.raises(SpawnAmbiguous):
        await stage.do(spawn(W7))
    assert (await stage.row(W7)).status is WorkerStatus.SPAWNING

    view = await observe(stage.store, stage.spawner, POOL, seconds(0))
    for action in decide(replace(view, policy=FleetPolicy(workers=3))).actions:
        await stage.do(action)

    assert list(stage.spawner.running(POOL)).count(W7) == 1
    assert (await stage.row(W7)).status is WorkerStatus.SPAWNING


async def test_a_volume_is_given_the_size_asked_for_and_a_larger_one_is_left(stage: Stage) -> None:
    await stage.do(expand(to_gb=150))
    await stage.do(expand(to_gb=120))

    assert stage.spawner.volumes == {"vol1": 150}


async def test_a_volume_nobody_has_is_refused(stage: Stage) -> None:
    with pytest.raises(SpawnError, match="volume vol2"):
        await stage.do(expand("vol2"))


async def test_a_provider_that_expands_nothing_says_what_to_do(stage: Stage, tmp_path: Path) -> None:
    local = LocalSpawner(tmp_path, {})

    with pytest.raises(SpawnError, match="got local; expand vol1 by hand"):
        await FleetActor(stage.store, local, POOL).act(expand(), stage.lease.fence)


async def test_events_of_others_are_left_alone(stage: Stage) -> None:
    await stage.store.events.append(POOL, [start(2)])
    before = len(await stage.told())

    await stage.do(EndStray(worker_id=STRAY, reason=BECAUSE))

    assert len(await stage.told()) == before
