"""A whole benchmark in one process: an orchestrator, workers whose load is reckoned instead of driven, one clock."""

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

import msgspec

from bystanders import add_bystanders, bystanders
from drumbeat.bench.control.orchestrator import Orchestrator
from drumbeat.bench.model import Action, RunPlan, RunView, ServerProbe
from drumbeat.core.beat import Beat
from drumbeat.core.clock import ManualClock
from drumbeat.core.histogram import Histogram, bucket_of
from drumbeat.core.pool import PoolId, Thresholds
from drumbeat.core.run import RUN_ENDED, Phase, Result, Run, RunId, RunStatus
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.runtime.beat import ControlLoop
from drumbeat.runtime.probe import Reading
from drumbeat.runtime.worker import DrainResult, Measurement, WorkerLifecycle, WorkloadFigures
from drumbeat.store.interface import JoinRequest
from drumbeat.store.memory import MemoryStore
from fleet.living import LivingSpawner
from simulate.bench_line import Line

LIMITS = Thresholds(
    heartbeat_every=timedelta(seconds=1),
    stale_after=timedelta(seconds=5),
    lost_after=timedelta(seconds=10),
    give_up_after=timedelta(seconds=8),
    start_within=timedelta(seconds=30),
    drain_within=timedelta(seconds=10),
    controller_gone_after=timedelta(seconds=120),
)
_SETTLE = 40


@dataclass(slots=True, kw_only=True)
class Database:
    """The database under test: how long an operation takes with so many connections at once."""

    latency: Callable[[float], float] = lambda connections: 0.01
    noise: float = 0.0
    error_rate: float = 0.0
    rng: Random = field(default_factory=lambda: Random(7))
    connections: dict[WorkerId, int] = field(default_factory=dict)
    cpu: dict[WorkerId, float] = field(default_factory=dict)  #: percent, by worker
    probe: ServerProbe | None = None
    done: Counter[WorkerId] = field(default_factory=Counter)  #: operations of MEASUREMENT, by worker: the truth

    @property
    def seconds(self) -> float:
        """What an operation takes now."""
        held = max(sum(self.connections.values()), 1)
        return self.latency(held) * max(0.1, 1 + self.noise * self.rng.gauss(0, 1))


class Reckoned:
    """A worker's load, reckoned from the database's latency."""

    def __init__(self, store: MemoryStore, database: Database, identity: JoinRequest, clock: ManualClock) -> None:
        self._store = store
        self._database = database
        self._me = identity
        self._clock = clock
        self._target = 0
        self._qps: float | None = None
        self._since = clock.elapsed()
        self._phase: str | None = None
        self._counted = Measurement()
        self._whole = Measurement()
        self._measured = 0.0  #: seconds

    async def prepare(self) -> None:
        self._target = (await self._store.workers.get(self._me.pool_id, self._me.worker_id)).target

    async def start(self, phase: str | None, target: int, qps: float | None = None) -> None:
        self._since = self._clock.elapsed()
        self._phase = phase
        self.set_target(target, timedelta(), qps)
        row = Result(run_id=RunId(self._me.pool_id), worker_id=self._me.worker_id, connections=target)
        await self._store.results.save([row])

    def set_phase(self, phase: str) -> None:
        self._reckon()
        if phase == Phase.MEASUREMENT and self._phase != phase:
            self._whole, self._measured = Measurement(), 0.0
        self._phase = phase

    def set_target(self, connections: int, ramp: timedelta, qps: float | None = None) -> None:
        self._reckon()
        self._target, self._qps = connections, qps
        self._database.connections[self._me.worker_id] = connections

    def _reckon(self) -> None:
        """Count what was done since the last time."""
        now = self._clock.elapsed()
        passed, self._since = (now - self._since).total_seconds(), now
        if not self._target or passed <= 0:
            return
        each = self._database.seconds
        rate = min(self._target / each, self._qps) if self._qps else self._target / each
        count = round(rate * passed)
        latency = Histogram()
        nanoseconds = int(each * 1e9)
        if count:
            latency.add([(bucket_of(nanoseconds), count)], nanoseconds * count, nanoseconds, nanoseconds)
        errors = round(count * self._database.error_rate)
        self._counted = _sum(self._counted, count, errors, latency)
        if self._phase == Phase.MEASUREMENT:
            self._whole = _sum(self._whole, count, errors, latency)
            self._measured += passed
            self._database.done[self._me.worker_id] += count

    def measure(self) -> Measurement | None:
        self._reckon()
        counted, self._counted = self._counted, Measurement()
        packed = base64.b64encode(counted.latency.to_bytes()).decode()
        kind = {"operations": counted.operations, "errors": counted.errors, "response": packed, "service": packed}
        extra = {"kinds": {"POINT_LOOKUP": kind}, "held": self._target, "client": {"was_the_limit": False}}
        return Measurement(
            operations=counted.operations,
            reads=counted.operations,
            errors=counted.errors,
            latency=counted.latency,
            extra=extra,
        )

    @property
    def figures(self) -> WorkloadFigures:
        whole = self._whole
        return WorkloadFigures(
            active=self._target, applied_target=self._target, operations=whole.operations, errors=whole.errors
        )

    async def ended(self) -> None:
        await asyncio.Event().wait()

    async def drain(self, within: timedelta) -> DrainResult:
        self.set_target(0, timedelta())
        return DrainResult()

    async def close(self) -> None:
        self._database.connections.pop(self._me.worker_id, None)
        run_id, whole = RunId(self._me.pool_id), self._whole
        rows = [
            Result(
                run_id=run_id,
                worker_id=self._me.worker_id,
                kind=kind,
                status=RunStatus.COMPLETED,
                operations=whole.operations,
                reads=whole.operations,
                errors=whole.errors,
                qps=whole.operations / self._measured if self._measured else None,
                latency=whole.latency,
            )
            for kind in (None, "POINT_LOOKUP")
        ]
        await self._store.results.save(rows)


def _sum(before: Measurement, count: int, errors: int, latency: Histogram) -> Measurement:
    both = Histogram()
    both.merge(before.latency)
    both.merge(latency)
    return Measurement(operations=before.operations + count, errors=before.errors + errors, latency=both)


class _Feeling:
    """What a worker feels of its machine: what the database's table says."""

    def __init__(self, database: Database, worker_id: WorkerId) -> None:
        self._database = database
        self._worker_id = worker_id

    def read(self) -> Reading:
        return Reading(host_cpu_percent=self._database.cpu.get(self._worker_id, 20.0), host_memory_percent=30.0)


class World:
    """One run, its store, its provider, its database and one orchestrator at a time."""

    def __init__(self, group: asyncio.TaskGroup, database: Database, limits: Thresholds, line: Line) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.database = database
        self.limits = limits
        self.line = line  #: the current orchestrator's
        self.spawner = LivingSpawner(self.store, self.clock, group, self._life)
        self.run_id = RunId("")
        self._orchestrators = 0
        self.service = self._service()
        self.loop: ControlLoop[RunView, Action] | None = None

    def _life(self, identity: JoinRequest) -> WorkerLifecycle:
        workload = Reckoned(self.store, self.database, identity, self.clock)
        probe = _Feeling(self.database, identity.worker_id)
        return WorkerLifecycle(self.store, identity, self.limits, workload, clock=self.clock, probe=probe)

    def _service(self) -> Orchestrator:
        self._orchestrators += 1
        store, spawner = self.line.store(self.store), self.line.spawner(self.spawner)
        return Orchestrator(store, spawner, self.clock, f"orchestrator-{self._orchestrators}", unwatched)

    async def create(self, plan: RunPlan, **config: Any) -> RunId:
        config["plan"] = msgspec.to_builtins(plan)
        self.run_id = await self.service.create_run(None, config, name="simulated", thresholds=self.limits)
        self.loop = self.service.loop(self.run_id, lambda: self.database.probe)
        return self.run_id

    async def begin(self, plan: RunPlan, **config: Any) -> None:
        await self.create(plan, **config)
        await self.service.start_run(self.run_id)

    def crash(self) -> None:
        """The orchestrator is gone, without a word; another will go on once its lease has run out."""
        self.line = Line()
        self.service = self._service()
        self.loop = self.service.loop(self.run_id, lambda: self.database.probe)

    async def beat(self) -> None:
        assert self.loop is not None
        await self.clock.advance(timedelta(seconds=1), settle=_SETTLE)
        await self.loop.beat()

    async def beats(self, count: int) -> None:
        for _ in range(count):
            await self.beat()

    async def until(self, happened: Callable[[Run], bool], most: int = 600) -> Run:
        """Beat until it has happened."""
        for _ in range(most):
            await self.beat()
            run = await self.run()
            if happened(run):
                return run
        raise AssertionError(f"it did not happen within {most} beats: {await self.run()}")

    async def finish(self, most: int = 3000) -> Run:
        return await self.until(lambda run: run.status in RUN_ENDED, most)

    async def run(self) -> Run:
        return await self.store.runs.get(self.run_id)

    async def workers(self, *statuses: WorkerStatus) -> Sequence[Worker]:
        rows = await self.store.workers.list(PoolId(self.run_id))
        return [row for row in rows if not statuses or row.status in statuses]

    async def kept(self) -> Sequence[Beat]:
        return await self.store.beats.list(PoolId(self.run_id), limit=100_000)

    async def actions(self) -> list[Mapping[str, Any]]:
        return [action for beat in await self.kept() for action in beat.actions]


@asynccontextmanager
async def unwatched(run: Run) -> AsyncIterator[Callable[[], ServerProbe | None]]:
    yield lambda: None


@asynccontextmanager
async def simulated(
    database: Database | None = None, *, limits: Thresholds = LIMITS, line: Line | None = None
) -> AsyncIterator[World]:
    """A world without a run, for as long as the block lasts. Whatever happens there, pools beside it are left as they were."""
    async with asyncio.TaskGroup() as group:
        world = World(group, database or Database(), limits, line or Line())
        await add_bystanders(world.store)
        before = await bystanders(world.store)
        yield world
        assert await bystanders(world.store) == before
        for life in world.spawner.lives.values():
            life.cancel()
