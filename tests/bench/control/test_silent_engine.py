"""Runs whose engine does not answer: other engines are used, and Ctrl-C does not wait for it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from drumbeat.bench.control.create import capacity
from drumbeat.bench.control.orchestrator import Orchestrator
from drumbeat.bench.model import RunPlan, Scaling, ScalingMode
from drumbeat.bench.service import BenchService
from drumbeat.core.clock import ManualClock, SystemClock
from drumbeat.core.errors import SpawnFailed, Unanswered
from drumbeat.core.event import EventType
from drumbeat.core.pool import PoolId
from drumbeat.core.recovery import unconfirmed
from drumbeat.core.run import Run, RunId, RunStatus
from drumbeat.core.worker import NOT_STARTED, Worker, WorkerId, WorkerStatus
from drumbeat.spawn.fake import AnswerLost, FakeSpawner, SpawnFails
from drumbeat.spawn.group import EngineGroup
from drumbeat.spawn.interface import Instance, Order, Spawner
from drumbeat.store.interface import JoinRequest
from drumbeat.store.memory import MemoryStore
from simulate.bench_world import unwatched

SECOND = timedelta(seconds=1)
DOWN = "host node1: connection refused"
TWO = RunPlan(scaling=Scaling(mode=ScalingMode.FIXED, min_workers=2, min_connections=4, cap=4), warmup=SECOND, connections=8)


class DownEngine(FakeSpawner):
    """An engine that cannot be reached."""

    async def spawn(self, order: Order) -> Instance:
        raise SpawnFailed(f"worker {order.worker_id} of {order.pool_id} could not be started: {DOWN}")

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        raise Unanswered(DOWN)

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        raise Unanswered(DOWN)


class MuteEngine(FakeSpawner):
    """An engine that takes requests, and never answers."""

    asked_now: asyncio.Event

    async def list(self, pool_id: PoolId) -> Sequence[Instance]:
        self.asked_now.set()
        await asyncio.Event().wait()
        return ()


@dataclass(slots=True)
class Site:
    """A started run, and its orchestrator's beats."""

    clock: ManualClock
    store: MemoryStore
    orchestrator: Orchestrator
    run_id: RunId

    @classmethod
    async def of(cls, clock: ManualClock, spawner: Spawner) -> "Site":
        store = MemoryStore(clock)
        orchestrator = Orchestrator(store, spawner, clock, "me", unwatched)
        run_id = await orchestrator.create_run(None, {"plan": msgspec.to_builtins(TWO), "scaling": {"engine": "a,b"}})
        await orchestrator.start_run(run_id)
        return cls(clock, store, orchestrator, run_id)

    async def beats(self, count: int = 1) -> None:
        loop = self.orchestrator.loop(self.run_id, lambda: None)
        for _ in range(count):
            await loop.beat()
            await self.clock.advance(SECOND)
        await loop.resign()

    async def run(self) -> Run:
        return await self.store.runs.get(self.run_id)

    async def workers(self) -> Sequence[Worker]:
        return await self.store.workers.list(PoolId(self.run_id))

    async def join(self) -> None:
        for row in await self.workers():
            asked = JoinRequest(
                pool_id=row.pool_id, worker_id=row.worker_id, slot=row.slot, instance=row.worker_id, host="h", pid=1
            )
            await self.store.membership.join(asked)
            await self.store.membership.move(row.pool_id, row.worker_id, row.worker_id, WorkerStatus.WAITING, "ready")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_a_run_uses_the_next_engine_if_the_first_does_not_answer(clock: ManualClock) -> None:
    second = FakeSpawner(clock, name="b")
    site = await Site.of(clock, EngineGroup([DownEngine(clock, name="a"), second]))

    await site.beats()
    await site.join()
    await site.beats()

    assert [row.engine for row in await site.workers()] == ["b", "b"]
    assert (await site.run()).status is RunStatus.RUNNING
    assert len(second.running(PoolId(site.run_id))) == 2


async def test_a_run_at_an_engine_that_does_not_answer_fails_with_that_reason(clock: ManualClock) -> None:
    site = await Site.of(clock, DownEngine(clock, name="a"))

    await site.beats(3)
    waiting = (await site.run()).custom_metrics["waiting"]
    rows = await site.workers()
    await site.beats(70)

    run, events = await site.run(), await site.store.events.read(PoolId(site.run_id), 0)
    assert waiting == f"waiting for 2 workers: engine a does not answer ({DOWN})"
    assert {row.shown_status for row in rows} == {NOT_STARTED}
    assert [event.payload["reason"] for event in events if event.type == EventType.WAITING_FOR_WORKERS] == [waiting]
    assert (run.status, run.completion_reason) == (RunStatus.FAILED, "START_TIMEOUT")
    assert run.custom_metrics["verdict"]["reason"].endswith(waiting)
    assert len(await site.workers()) == 2, "the rows of workers that were refused are used again"
    assert unconfirmed(await site.workers()) == []


async def test_a_full_engine_ends_a_run_with_that_reason(clock: ManualClock) -> None:
    full = "engine a has no free slot (1 of 1 in use)"
    engine = FakeSpawner(clock, [SpawnFails(worker_id=None, reason=full, times=1000)], name="a")
    site = await Site.of(clock, engine)

    await site.beats(70)

    run = await site.run()
    assert run.completion_reason == "START_TIMEOUT"
    assert run.custom_metrics["verdict"]["reason"].endswith(f"waiting for 2 workers: {full}")
    assert len(engine.asked("spawn")) < 12, "a full engine is asked less and less often"


async def test_workers_that_may_still_run_are_ended_once_their_engine_answers(clock: ManualClock) -> None:
    engine = FakeSpawner(clock, [AnswerLost()], name="a")
    silent = DownEngine(clock, name="a")
    site = await Site.of(clock, engine)
    await site.beats()
    service = Orchestrator(site.store, silent, clock, "me", unwatched)
    await service.stop_run(site.run_id)
    loop = service.loop(site.run_id, lambda: None)
    for _ in range(6):
        await loop.beat()
        await clock.advance(SECOND)

    assert (await site.run()).status is RunStatus.CANCELLED
    assert {row.worker_id for row in unconfirmed(await site.workers())} == set(engine.running(PoolId(site.run_id)))

    await loop.resign()
    await site.beats()

    assert (engine.running(PoolId(site.run_id)), unconfirmed(await site.workers())) == ([], [])


async def test_a_run_that_is_stopped_does_not_wait_for_an_engine_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SystemClock()
    store, engine = MemoryStore(clock), MuteEngine(clock, name="a")
    engine.asked_now = asyncio.Event()
    service = BenchService(store, clock, "me", capacity(4, 8 << 30), lambda engines: engine)
    monkeypatch.setattr(service, "_watch", unwatched)
    config: dict[str, Any] = {"plan": msgspec.to_builtins(TWO), "scaling": {"engine": "a"}}
    run_id = await Orchestrator(store, engine, clock, "me", unwatched).create_run(None, config)
    await service.start(run_id)
    leave, hurry = asyncio.Event(), asyncio.Event()

    async def interrupt() -> None:
        await engine.asked_now.wait()
        hurry.set()
        await service.stop(run_id)

    status, _ = await asyncio.gather(service.conduct(run_id, leave, hurry=hurry), interrupt())

    assert status is RunStatus.CANCELLED
