"""A spawner on a fake Ray head, and time that passes as soon as somebody waits for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import Order
from drumbeat.spawn.ray import RaySettings, RaySpawner
from spawn.ray.fake_ray import TOKEN, FakeRay
from spawn.runpod.rig import LeapingClock
from spawn.runpod.wire import SimulatedWire

POOL, OTHER = PoolId("papers"), PoolId("other")
ANN, BOB = WorkerId("ann"), WorkerId("bob")
SECRET = "hunter2-of-the-store"
STORE = {"DRUMBEAT_STORE": f"postgresql://drum:{SECRET}@db/drum"}


def spawner_at(ray: FakeRay, *, scope: str = "store", token: str | None = TOKEN, **changed: Any) -> RaySpawner:
    """A spawner of a process of its own: it remembers nothing."""
    settings = RaySettings(address="http://head:8265", **changed)
    variables = {"PASSED_ON": "value", **({"RAY_AUTH_TOKEN": token} if token else {})}
    return RaySpawner(settings, STORE, scope, ray.clock, variables=variables, transport=SimulatedWire(ray))


@asynccontextmanager
async def rigged(**changed: Any) -> AsyncIterator[tuple[RaySpawner, FakeRay]]:
    ray = FakeRay(LeapingClock())
    async with spawner_at(ray, **changed) as spawner:
        yield spawner, ray


def order_for(worker_id: WorkerId = ANN, pool_id: PoolId = POOL, **changed: Any) -> Order:
    return Order(pool_id=pool_id, worker_id=worker_id, slot=0, group_count=1, **changed)
