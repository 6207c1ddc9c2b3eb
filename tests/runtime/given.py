"""What the runtime's tests begin with: a store and a clock of their own, a workload that does as it is told."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from drumbeat.core import event
from drumbeat.core.clock import Clock, ManualClock
from drumbeat.core.event import NewEvent
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, Thresholds, pool
from drumbeat.core.run import Phase, Run, RunId, RunStatus
from drumbeat.core.worker import ExitCode, Worker, WorkerId, WorkerStatus
from drumbeat.runtime.worker import DrainResult, Measurement, ResourceProbe, WorkerLifecycle, Workload, WorkloadFigures
from drumbeat.store.interface import JoinRequest, RunChange
from drumbeat.store.memory import MemoryStore

POOL = PoolId("p")
ME = WorkerId("w1")
BENCH = PRESETS[PoolKind.BENCH]


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


async def settle(turns: int = 100) -> None:
    """Let every task run until it waits for the clock."""
    for _ in range(turns):
        await asyncio.sleep(0)


@dataclass(slots=True, kw_only=True)
class FakeWorkload:
    """Takes as long as it is told, fails as it is told, and notes what was asked of it and when."""

    clock: Clock
    prepare_takes: timedelta = timedelta()
    start_takes: timedelta = timedelta()
    drain_takes: timedelta = timedelta()
    close_takes: timedelta = timedelta()
    heeds_limit: bool = True
    failures: dict[str, Exception] = field(default_factory=dict)  #: by method
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    times: list[timedelta] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    breaks_with: Exception | None = None  #: what ``ended`` raises once it is over
    counted: Measurement = field(default_factory=Measurement)
    figures: WorkloadFigures = field(default_factory=WorkloadFigures)

    @property
    def names(self) -> list[str]:
        return [call[0] for call in self.calls]

    def count(self, operations: int, errors: int = 0) -> None:
        """Operations are done."""
        self.counted = Measurement(operations=self.counted.operations + operations, errors=self.counted.errors + errors)
        done, failed = self.figures.operations + operations, self.figures.errors + errors
        self.figures = WorkloadFigures(active=self.figures.active, operations=done, errors=failed, error=self.figures.error)

    async def prepare(self) -> None:
        self._note("prepare")
        await self.clock.sleep(self.prepare_takes)

    async def start(self, phase: str | None, target: int, qps: float | None = None) -> None:
        self._note("start", phase, target, *([] if qps is None else [qps]))
        await self.clock.sleep(self.start_takes)

    def set_phase(self, phase: str) -> None:
        self._note("set_phase", phase)

    def set_target(self, connections: int, ramp: timedelta, qps: float | None = None) -> None:
        self._note("set_target", connections, ramp, *([] if qps is None else [qps]))

    def measure(self) -> Measurement | None:
        counted, self.counted = self.counted, Measurement()
        return counted

    async def ended(self) -> None:
        await self.over.wait()
        if self.breaks_with is not None:
            raise self.breaks_with

    async def drain(self, within: timedelta) -> DrainResult:
        self._note("drain", within)
        in_time = self.drain_takes <= within or not self.heeds_limit
        await self.clock.sleep(self.drain_takes if in_time else within)
        return DrainResult(timed_out=not in_time, abandoned=0 if in_time else self.figures.active)

    async def close(self) -> None:
        self._note("close")
        await self.clock.sleep(self.close_takes)

    def _note(self, *call: Any) -> None:
        self.calls.append(call)
        self.times.append(self.clock.elapsed())
        if failure := self.failures.get(call[0]):
            raise failure


class Slow:
    """A table of a store whose every answer takes its time: before the deed, or after it."""

    def __init__(self, table: Any, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self.before = self.after = timedelta()
        self.lose: list[Exception] = []  #: for the next answers: the deed is done, but this is all that comes back
        self.asked: list[tuple[str, timedelta]] = []

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.asked.append((name, self._clock.elapsed()))
            await self._clock.sleep(self.before)
            answer = await getattr(self._table, name)(*args, **kwargs)
            await self._clock.sleep(self.after)
            if self.lose:
                raise self.lose.pop(0)
            return answer

        return call


class World:
    """A store with one pool, a clock, and the workers a test brings to life in it."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.store = MemoryStore(self.clock)

    async def with_pool(self, kind: PoolKind = PoolKind.BENCH) -> "World":
        await self.store.pools.create(pool(POOL, kind))
        return self

    async def with_run(self) -> "World":
        await self.store.runs.create(Run(run_id=RunId(POOL), name="a run", config={}), pool(POOL, PoolKind.BENCH))
        return self

    async def passes(self, duration: float) -> None:
        """So many seconds pass."""
        await self.clock.advance(seconds(duration), settle=40)
        await settle()

    async def tell(self, *events: NewEvent) -> None:
        await self.store.events.append(POOL, events)

    async def move_run(self, *path: RunStatus, phase: Phase | None = None) -> None:
        for status in path:
            await self.store.runs.update(await self.store.runs.get(RunId(POOL)), RunChange(status=status, phase=phase))

    async def row(self, worker_id: WorkerId = ME) -> Worker:
        return await self.store.workers.get(POOL, worker_id)

    async def moves(self) -> Sequence[str]:
        """Every state the worker has been in, as the events tell."""
        events = await self.store.events.read(POOL, 0, limit=1000)
        return [told.payload["to"] for told in events if told.type == event.EventType.WORKER_MOVED]

    @asynccontextmanager
    async def alive(self, workload: Workload, **how: Any) -> AsyncIterator["Alive"]:
        """A worker that lives while the block lasts."""
        async with asyncio.TaskGroup() as group:
            life = self.life(workload, **how)
            alive = Alive(life, group.create_task(life.run()))
            await settle()
            yield alive
            alive.task.cancel()

    @asynccontextmanager
    async def working(self, workload: Workload, **how: Any) -> AsyncIterator["Alive"]:
        """A worker that has been started."""
        await self.tell(event.start(1))
        async with self.alive(workload, **how) as alive:
            await self.passes(0)
            assert (await self.row()).status is WorkerStatus.ACTIVE
            yield alive

    def life(
        self,
        workload: Workload,
        thresholds: Thresholds = BENCH,
        probe: ResourceProbe | None = None,
        gated: bool = True,
        worker_id: WorkerId = ME,
    ) -> WorkerLifecycle:
        identity = JoinRequest(pool_id=POOL, worker_id=worker_id, slot=0, instance="i1", host="h", pid=1)
        return WorkerLifecycle(self.store, identity, thresholds, workload, clock=self.clock, probe=probe, gated=gated)


@dataclass(frozen=True, slots=True)
class Alive:
    """A life in progress."""

    life: WorkerLifecycle
    task: asyncio.Task[ExitCode]

    def code(self) -> ExitCode | None:
        """How it ended; None while it lives."""
        return self.task.result() if self.task.done() else None
