"""A fleet that lives in one process: a controller, a fake provider whose instances are real worker lives, one clock."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.beat import Beat
from drumbeat.core.clock import ManualClock
from drumbeat.core.pool import PoolId, Thresholds
from drumbeat.core.worker import ExitCode, Worker, WorkerId, WorkerStatus
from drumbeat.fleet.model import Action, FleetPolicy, FleetView
from drumbeat.fleet.workload import Metronome
from drumbeat.runtime.beat import BeatReport, ControlLoop
from drumbeat.runtime.worker import WorkerLifecycle
from drumbeat.settings import Settings
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.spawn.interface import Instance, Order
from drumbeat.store.interface import JoinRequest
from drumbeat.store.memory import MemoryStore
from fleet.given import seconds

LIMITS = Thresholds(
    heartbeat_every=seconds(1),
    stale_after=seconds(5),
    lost_after=seconds(10),
    give_up_after=seconds(8),
    start_within=seconds(30),
    drain_within=seconds(10),
    controller_gone_after=seconds(60),
)
_SETTLE = 60


class LivingSpawner(FakeSpawner):
    """Starts a worker's life for every instance it starts; when the one ends, so does the other."""

    def __init__(
        self,
        store: MemoryStore,
        clock: ManualClock,
        group: asyncio.TaskGroup,
        live: Callable[[JoinRequest], WorkerLifecycle] | None = None,
    ) -> None:
        super().__init__(clock)
        self._store = store
        self._life_of = live or self._metronome
        self._lives_clock = clock
        self._group = group
        self.lives: dict[WorkerId, asyncio.Task[None]] = {}

    async def spawn(self, order: Order) -> Instance:
        before = self.running(order.pool_id)
        try:
            return await super().spawn(order)
        finally:
            if order.worker_id in set(self.running(order.pool_id)) - set(before):
                self.lives[order.worker_id] = self._group.create_task(self._live(order))

    async def terminate(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        await super().terminate(pool_id, worker_id)
        if life := self.lives.get(worker_id):
            life.cancel()

    def kill(self, pool_id: PoolId, worker_id: WorkerId) -> None:
        """Kill -9: it ends without a word, and its provider knows."""
        self.lives[worker_id].cancel()
        self.end(pool_id, worker_id, exit_code=-9)

    def freeze(self, worker_id: WorkerId) -> None:
        """It falls silent, and its provider sees nothing of it."""
        self.lives[worker_id].cancel()

    async def _live(self, order: Order) -> None:
        identity = JoinRequest(
            pool_id=order.pool_id, worker_id=order.worker_id, slot=order.slot, instance=f"i-{order.worker_id}", host="h", pid=1
        )
        code: ExitCode = await self._life_of(identity).run()
        self.end(order.pool_id, order.worker_id, exit_code=code)

    def _metronome(self, identity: JoinRequest) -> WorkerLifecycle:
        clock = self._lives_clock
        return WorkerLifecycle(self._store, identity, LIMITS, Metronome(clock), clock=clock)


class Fleet:
    """A pool named ``fleet``, its store, its provider and one controller."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.spawner = LivingSpawner(self.store, self.clock, group)
        self.plane = ControlPlane(Settings(store="memory:", state_dir=Path("/dev/null/state")), self.store, self.clock)
        self.pool_id = PoolId("fleet")
        self.loop = self.controller()

    def controller(self) -> ControlLoop[FleetView, Action]:
        return self.plane.fleets.loop(self.pool_id, self.spawner, seconds(1))

    async def want(self, workers: int, target: int = 1, ramp: timedelta = timedelta()) -> None:
        await self.plane.fleets.set_policy(self.pool_id, FleetPolicy(workers=workers, target=target, ramp=ramp))

    async def beats(self, count: int) -> Sequence[BeatReport]:
        """So many seconds pass, with a beat in each."""
        return [await self._beat() for _ in range(count)]

    async def _beat(self) -> BeatReport:
        await self.clock.advance(seconds(1), settle=_SETTLE)
        return await self.loop.beat()

    async def passes(self, number: float) -> None:
        """So many seconds pass without a beat."""
        await self.clock.advance(seconds(number), settle=_SETTLE)

    async def workers(self, *statuses: WorkerStatus) -> Sequence[Worker]:
        return [row for row in await self.store.workers.list(self.pool_id) if not statuses or row.status in statuses]

    async def names(self, *statuses: WorkerStatus) -> list[str]:
        return [row.worker_id for row in await self.workers(*statuses)]

    async def kept(self) -> Sequence[Beat]:
        return await self.store.beats.list(self.pool_id)


@asynccontextmanager
async def living_fleet() -> AsyncIterator[Fleet]:
    """A fleet of nobody, for as long as the block lasts."""
    async with asyncio.TaskGroup() as group:
        fleet = Fleet(group)
        await fleet.plane.fleets.create(fleet.pool_id, FleetPolicy(workers=0), LIMITS)
        yield fleet
        for life in fleet.spawner.lives.values():
            life.cancel()
