"""What a fleet's controller sees of a queue, of what it asked its provider, and of what the last beat left."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import SpawnCause, SpawnError, StaleWrite, StoreUnavailable
from drumbeat.core.job import AttemptOutcome, JobId, JobOutcome, NewJob
from drumbeat.core.lease import Lease
from drumbeat.core.pool import PoolKind, pool
from drumbeat.core.worker import Holder, Worker, WorkerId, WorkerStatus
from drumbeat.fleet.act import FleetActor
from drumbeat.fleet.decide import decide
from drumbeat.fleet.model import Fail, FleetPolicy, FleetView, PolicyName, ReleaseJobs
from drumbeat.fleet.observe import observe, relevant_workers
from drumbeat.fleet.queue import PAGE, PAGES, SAMPLED
from drumbeat.runtime.beat import BeatReport, ControlLoop
from drumbeat.runtime.lease import Leadership
from drumbeat.spawn.fake import AnswerLost, FakeSpawner, SpawnFails
from drumbeat.store.contract.given import active, heartbeat
from drumbeat.store.interface import ClaimRequest, PoolChange
from drumbeat.store.memory import MemoryStore
from fleet.given import NOW, POOL, ready_worker, seconds, worker

W0, W1 = WorkerId("worker-0"), WorkerId("worker-1")
POLICY = FleetPolicy(policy=PolicyName.LAG_AWARE, min_workers=0, max_workers=5)


def held_by(worker_id: WorkerId) -> Holder:
    return Holder(pool_id=POOL, worker_id=worker_id, instance="i1")


class Stage:
    """A pool with a queue, and a controller whose beats can be watched."""

    def __init__(self, policy: FleetPolicy = POLICY) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.spawner = FakeSpawner(self.clock)
        self.policy = policy
        leadership = Leadership(self.store, POOL, "me", timedelta(minutes=10), self.clock)
        self.loop = ControlLoop(
            store=self.store,
            pool_id=POOL,
            leadership=leadership,
            clock=self.clock,
            every=policy.every,
            observe=lambda gap: observe(self.store, self.spawner, POOL, gap),
            decide=decide,
            act=FleetActor(self.store, self.spawner, POOL).act,
        )

    async def begin(self) -> "Stage":
        await self.store.pools.create(pool(POOL, PoolKind.JOBS, **self.policy.to_json()))
        return self

    async def beat(self) -> BeatReport:
        report = await self.loop.beat()
        assert report.led
        return report

    async def beats(self, count: int, every: float = 30) -> list[BeatReport]:
        made = []
        for _ in range(count):
            made.append(await self.beat())
            await self.clock.advance(seconds(every))
        return made

    async def push(self, count: int, **fields: Any) -> Sequence[JobId]:
        return await self.store.queue.push(POOL, [NewJob(payload=n, **fields) for n in range(count)])

    async def claim(self, worker_id: WorkerId, limit: int = 1) -> Sequence[Any]:
        return await self.store.queue.claim(
            ClaimRequest(pool_id=POOL, holder=held_by(worker_id), lease=seconds(600), limit=limit)
        )

    async def look(self) -> FleetView:
        return await observe(self.store, self.spawner, POOL, timedelta())


@pytest.fixture
async def stage() -> Stage:
    return await Stage().begin()


async def test_the_queue_is_in_the_view(stage: Stage) -> None:
    await stage.push(3, type="image")
    await stage.push(2, capability="gpu")
    (job,) = await stage.claim(W0)

    seen = await stage.look()

    assert seen.queue is not None
    assert (seen.queue.ready, seen.queue.blocked, seen.queue.claimed, seen.queue.types) == (2, 2, 1, {"image": 2, "": 2})
    assert seen.queue.demand == {"": 2, "gpu": 2}
    assert [(each.job_id, each.worker_id, each.claimed_at) for each in seen.held] == [(job.job_id, W0, job.claimed_at)]


async def test_arrivals_are_counted_once_each(stage: Stage) -> None:
    await stage.beats(1)
    await stage.push(4)
    first = await stage.look()
    await stage.beats(2)
    await stage.push(1)

    assert sum(each.count for each in first.arrived) == 4
    assert sum(each.count for each in (await stage.look()).arrived) == 1
    assert sum(count for _, count in (await stage.beat()).summary["state"]["arrivals"]) == 5


async def test_jobs_of_a_paused_type_are_not_counted_as_arrivals(stage: Stage) -> None:
    await stage.store.pools.change(POOL, PoolChange(policy={"paused_type:video": "2026-01-01T00:00:00+00:00"}))
    await stage.beats(1)
    await stage.push(3, type="video")
    await stage.push(2, type="image")

    assert sum(each.count for each in (await stage.look()).arrived) == 2


async def test_many_jobs_of_a_paused_type_hide_the_types_of_no_others(stage: Stage) -> None:
    await stage.store.pools.change(POOL, PoolChange(policy={"paused_type:video": "2026-01-01T00:00:00+00:00"}))
    await stage.push(SAMPLED + 1, type="video")
    await stage.push(2, type="image")

    queue = (await stage.look()).queue

    assert queue is not None
    assert (queue.ready, queue.blocked, queue.types) == (2, SAMPLED + 1, {"image": 2})


async def test_jobs_that_one_beat_could_not_read_are_counted_by_the_next(stage: Stage) -> None:
    await stage.push(PAGES * PAGE + 10)
    await stage.clock.advance(seconds(1))
    await stage.beats(3)
    await stage.push(PAGES * PAGE + 20)
    await stage.clock.advance(seconds(1))

    beats = await stage.beats(3)

    assert [count for _, count in beats[-1].summary["state"]["arrivals"]] == [0, 0, 0, PAGES * PAGE, 20, 0]


@pytest.mark.parametrize(
    ("outcome", "ok"), [(AttemptOutcome.DONE, True), (AttemptOutcome.FAILED, False), (AttemptOutcome.RELEASED, None)]
)
async def test_how_long_jobs_took_is_seen_when_they_are_over(stage: Stage, outcome: AttemptOutcome, ok: bool | None) -> None:
    await stage.push(1, type="image")
    (job,) = await stage.claim(W0)
    await stage.beats(1)
    await stage.store.queue.settle(held_by(W0), [JobOutcome(token=job.token, outcome=outcome)])

    seen = (await stage.look()).finished

    assert [(each.worker_id, each.type, each.took, each.ok) for each in seen] == (
        [] if ok is None else [(W0, "image", seconds(30), ok)]
    )


@pytest.mark.parametrize(
    ("ended", "failed", "ill"),
    [(9, 9, True), (2, 2, False), (9, 8, False), (9, 0, False)],
    ids=["all", "two", "not all", "none"],
)
async def test_jobs_that_fail_between_two_beats_are_counted_too(stage: Stage, ended: int, failed: int, ill: bool) -> None:
    row = await active(stage.store, await stage.store.pools.get(POOL), W0)
    await stage.store.membership.beat(heartbeat(row, operations=20, errors=5))
    await stage.beats(1)
    await stage.store.membership.beat(heartbeat(row, operations=20 + ended, errors=5 + failed))

    seen = await stage.look()

    found = [each.rule for each in decide(seen).actions if isinstance(each, Fail)]
    assert found == (["task_failures"] if ill else [])
    assert all(not each.ok for each in seen.finished)


async def test_they_are_not_counted_twice(stage: Stage) -> None:
    row = await active(stage.store, await stage.store.pools.get(POOL), W0)
    await stage.push(1)
    (job,) = await stage.claim(W0)
    await stage.beats(1)
    await stage.store.queue.settle(held_by(W0), [JobOutcome(token=job.token, outcome=AttemptOutcome.FAILED)])
    await stage.store.membership.beat(heartbeat(row, operations=1, errors=1))

    assert [each.ok for each in (await stage.look()).finished] == [False]


async def test_a_queue_that_cannot_be_read_is_not_empty(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(type(stage.store.jobs), "counts", away)

    seen = await stage.look()

    assert (seen.queue, seen.held_partial) == (None, True)


async def test_every_beat_can_be_decided_again_from_its_row(stage: Stage) -> None:
    await stage.push(12)
    stage.spawner.faults += [AnswerLost(started=False), SpawnFails()]
    await stage.beats(6)

    beats = await stage.store.beats.list(POOL)
    assert len(beats) == 6
    for beat in beats:
        assert beat.view is not None
        decision = decide(msgspec.convert(beat.view, FleetView))
        assert (decision.why_not, decision.summary) == (beat.why_not, beat.summary)
        assert len(decision.actions) == len(beat.actions)


async def test_a_provider_that_always_fails_is_asked_five_times_in_ten_minutes(stage: Stage) -> None:
    await stage.push(50)
    stage.spawner.faults.append(SpawnFails(times=1000))

    await stage.beats(120, every=5)

    assert 3 <= len(stage.spawner.asked("spawn")) <= 5


async def test_one_that_never_answers_too(stage: Stage) -> None:
    await stage.push(50)
    stage.spawner.faults.append(AnswerLost(times=1000, started=False))

    await stage.beats(20)

    assert len(stage.spawner.asked("spawn")) <= 5


async def test_a_controller_that_forgets_is_no_less_patient(stage: Stage) -> None:
    await stage.push(50)
    stage.spawner.faults.append(SpawnFails(times=1000))
    actor = FleetActor(stage.store, stage.spawner, POOL)
    lease = await stage.store.leases.acquire("pool", "me", timedelta(hours=1))
    assert lease is not None
    for _ in range(20):
        seen = await stage.look()
        assert seen.state is None
        for action in decide(seen).actions:
            with contextlib.suppress(SpawnError):
                await actor.act(action, lease.fence)
        await stage.clock.advance(seconds(30))

    assert 2 <= len(stage.spawner.asked("spawn")) <= 5


async def test_the_cause_of_a_refusal_is_kept_and_read_again(stage: Stage) -> None:
    await stage.push(1)
    stage.spawner.faults.append(SpawnFails(cause=SpawnCause.RATE_LIMITED, retry_after=seconds(90)))
    await stage.beats(1)

    seen = await stage.look()

    assert seen.last is not None
    (told,) = seen.last.spawns
    assert (told.cause, told.retry_after) == (SpawnCause.RATE_LIMITED, seconds(90))
    (row,) = await stage.store.workers.list(POOL)
    assert (row.status, row.meta["cause"]) == (WorkerStatus.TERMINATED, "rate_limited")


async def test_what_was_not_tried_was_not_asked(stage: Stage) -> None:
    await stage.push(3)
    stage.spawner.faults.append(SpawnFails())
    await stage.beats(1)

    seen = await stage.look()

    assert seen.last is not None
    assert [each.cause for each in seen.last.spawns] == [SpawnCause.NO_CAPACITY]
    assert len(await stage.store.workers.list(POOL)) == 1


async def test_a_memory_that_cannot_be_read_is_forgotten(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await stage.beats(1)
    last = await stage.store.beats.last(POOL)
    assert last is not None

    async def garbled(*_: object, **__: object) -> object:
        return replace(last, summary={"state": {"wanted": "many"}})

    monkeypatch.setattr(type(stage.store.beats), "last", garbled)

    assert (await stage.look()).state is None


async def holding(stage: Stage) -> tuple[Worker, Lease]:
    row = await active(stage.store, await stage.store.pools.get(POOL), W0)
    await stage.push(1)
    await stage.claim(W0)
    lease = await stage.store.leases.acquire("pool", "me", seconds(60))
    assert lease is not None
    return row, lease


async def test_an_ill_worker_loses_its_jobs_once_its_row_is_closed(stage: Stage) -> None:
    row, lease = await holding(stage)
    actor = FleetActor(stage.store, stage.spawner, POOL)

    with pytest.raises(StaleWrite, match="again and keeps its jobs"):
        await actor.act(ReleaseJobs(worker_id=W0, reason="it is over"), lease.fence)
    await actor.act(Fail(worker=row, rule="stuck", reason="Stuck task"), lease.fence)
    await actor.act(ReleaseJobs(worker_id=W0, reason="it is over"), lease.fence)

    closed = await stage.store.workers.get(POOL, W0)
    assert (closed.status, closed.error, closed.meta["fault"]) == (WorkerStatus.ERROR, "Stuck task", "stuck")
    assert (await stage.store.jobs.counts(POOL)).ready == 1


def test_workers_of_long_ago_are_not_in_sight_but_for_what_they_tell() -> None:
    old = [
        ready_worker(n, age=9999 + n, status=WorkerStatus.TERMINATED, reaped=True, ended_at=NOW - seconds(4000))
        for n in range(20)
    ]
    fresh, lost = worker(30), worker(31, status=WorkerStatus.LOST, ended_at=NOW - seconds(9000))

    seen = relevant_workers([*old, fresh, lost], NOW)

    assert all(each in seen for each in (fresh, lost))
    assert len(seen) == 2 + 9
