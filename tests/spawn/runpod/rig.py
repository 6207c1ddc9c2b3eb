"""A spawner on a simulated RunPod, and time that passes as soon as somebody waits for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from drumbeat.core.clock import ManualClock
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import Order
from drumbeat.spawn.runpod import API_KEY_VARIABLE, RunPodSettings, RunPodSpawner
from spawn.runpod.simulator import KEY, RunPodSimulator
from spawn.runpod.wire import SimulatedWire

POOL = PoolId("p")
ANN, BOB = WorkerId("ann"), WorkerId("bob")
STORE = {"DRUMBEAT_STORE": "postgresql://drum:hunter2secret@db/drum"}
VARIABLES = {API_KEY_VARIABLE: KEY}


class LeapingClock(ManualClock):
    """Whoever sleeps wakes at once, that much later."""

    async def sleep(self, duration: timedelta) -> None:
        self._elapsed += max(duration, timedelta())
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Rig:
    clock: LeapingClock
    simulator: RunPodSimulator
    spawner: RunPodSpawner

    def another(self, **settings: Any) -> RunPodSpawner:
        """A spawner of another process on the same account: it remembers nothing."""
        return make_spawner(self.simulator, self.clock, **settings)

    async def pass_time(self, duration: timedelta) -> None:
        await self.clock.sleep(duration)


def make_spawner(simulator: RunPodSimulator, clock: LeapingClock, folder: Path | None = None, **settings: Any) -> RunPodSpawner:
    wanted = RunPodSettings(**{"image": "drumbeat/worker:1", "max_price_per_hour": 2.0, **settings})
    return RunPodSpawner(wanted, STORE, clock, VARIABLES, SimulatedWire(simulator), folder)


@asynccontextmanager
async def rigged(settings: dict[str, Any] | None = None, **account: Any) -> AsyncIterator[Rig]:
    """The spawner is open as long as the block lasts. Nothing it asked may break the schema."""
    clock = LeapingClock()
    simulator = RunPodSimulator(clock, **account)
    async with make_spawner(simulator, clock, **(settings or {})) as spawner:
        yield Rig(clock, simulator, spawner)
    assert simulator.violations == []


def order(worker_id: WorkerId = ANN, pool_id: PoolId = POOL, **more: Any) -> Order:
    return Order(pool_id=pool_id, worker_id=worker_id, slot=0, group_count=1, **more)
