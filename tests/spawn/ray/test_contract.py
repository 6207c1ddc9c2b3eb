"""The Ray spawner keeps the contract for every spawner, against a fake head; against a real one, see tests/engines/ray."""

from collections.abc import AsyncIterator

import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract import ExitCodeContract, OrderFactory, PoolListContract, SpawnerContract
from drumbeat.spawn.interface import Order, Spawner
from spawn.ray.fake_ray import FakeRay
from spawn.ray.rig import order_for, spawner_at


class TestRaySpawner(SpawnerContract, ExitCodeContract, PoolListContract):
    @pytest.fixture
    async def spawner(self) -> AsyncIterator[Spawner]:
        async with spawner_at(FakeRay(SystemClock(), starts=True)) as spawner:
            yield spawner

    @pytest.fixture
    def order(self) -> OrderFactory:
        def make(worker_id: WorkerId, pool_id: PoolId, *, exits: int | None = None, startable: bool = True) -> Order:
            command = ("run",) if exits is None else ("exit", str(exits))
            return order_for(worker_id, pool_id, command=command if startable else ("\0",))

        return make
