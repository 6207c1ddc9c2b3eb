"""A fleet's price counts for workers of an engine that has none of its own: the engine's 0 does not make the ceilings void."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import ManualClock
from drumbeat.core.pool import PoolId, Thresholds
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.fleet.model import FleetPolicy
from drumbeat.settings import Settings
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.spawn.group import EngineGroup
from drumbeat.spawn.interface import Instance, Order, Spawner
from drumbeat.store.interface import JoinRequest
from drumbeat.store.memory import MemoryStore

POOLS = tuple(PoolId(name) for name in ("a", "b", "c"))
EVERY, DAYS = timedelta(minutes=10), timedelta(days=10_000)
POLICY = FleetPolicy(workers=3, price_per_hour=2.0, max_per_day=10.0, every=EVERY)
PATIENT = Thresholds(
    heartbeat_every=timedelta(hours=1),
    stale_after=DAYS / 3,
    lost_after=DAYS,
    give_up_after=DAYS / 2,
    start_within=DAYS,
    drain_within=timedelta(minutes=1),
    controller_gone_after=DAYS,
)


class Unpriced(FakeSpawner):
    """Reports a price of 0, as Docker, Kubernetes, SSH hosts and Ray do if their settings have no price."""

    async def spawn(self, order: Order) -> Instance:
        return replace(await super().spawn(order), price_per_hour=0.0)


def one(clock: ManualClock) -> list[FakeSpawner]:
    return [FakeSpawner(clock)]


def zero(clock: ManualClock) -> list[FakeSpawner]:
    return [Unpriced(clock, name="docker")]


def two(clock: ManualClock) -> list[FakeSpawner]:
    return [FakeSpawner(clock, name="a"), Unpriced(clock, name="b")]


@pytest.mark.parametrize("members", [one, zero, two])
async def test_a_days_ceiling_holds_whatever_the_engine_says_of_its_price(
    members: Callable[[ManualClock], list[FakeSpawner]], tmp_path: Path
) -> None:
    clock = ManualClock(datetime(2026, 1, 5, 0, 5, tzinfo=UTC))
    store = MemoryStore(clock)
    plane = ControlPlane(Settings(store="memory:", state_dir=tmp_path), store, clock)
    for pool_id in POOLS:
        await plane.fleets.create(pool_id, POLICY, PATIENT)
    engines = members(clock)
    async with engines[0] if len(engines) == 1 else EngineGroup(engines) as spawner:
        worked = dict.fromkeys(POOLS, timedelta())
        for _ in range(6 * 20):
            for pool_id in POOLS:
                await beat(plane, spawner, engines, pool_id)
                worked[pool_id] += EVERY * sum(len(engine.running(pool_id)) for engine in engines)
            clock.jump(EVERY)

    for pool_id, time in worked.items():
        assert 5 < time / timedelta(hours=1) * 2.0 <= 10, pool_id


async def beat(plane: ControlPlane, spawner: Spawner, engines: list[FakeSpawner], pool_id: PoolId) -> None:
    """Run a beat; then new workers become active, and workers that are asked to drain end."""
    await plane.fleets.loop(pool_id, spawner, EVERY).beat()
    for row in await plane.store.workers.list(pool_id, live=True):
        if row.status is WorkerStatus.SPAWNING:
            await join(plane, row)
        elif row.drain_deadline is not None:
            await plane.store.membership.move(pool_id, row.worker_id, "i", WorkerStatus.TERMINATED, "drained")
            for engine in engines:
                engine.end(pool_id, row.worker_id, 0)


async def join(plane: ControlPlane, row: Worker) -> None:
    given = JoinRequest(pool_id=row.pool_id, worker_id=row.worker_id, instance="i", slot=row.slot, host="h", pid=1)
    await plane.store.membership.join(given)
    for status in (WorkerStatus.WAITING, WorkerStatus.ACTIVE):
        await plane.store.membership.move(row.pool_id, row.worker_id, "i", status, "ready")
