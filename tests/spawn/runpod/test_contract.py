"""RunPod's spawner keeps the contract, over real sockets."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract import OrderFactory, PoolListContract, SpawnerContract, VolumeContract
from drumbeat.spawn.interface import Order
from drumbeat.spawn.runpod import RunPodSettings, RunPodSpawner
from spawn.runpod.faults import Answers
from spawn.runpod.rig import STORE, VARIABLES, order as make_order
from spawn.runpod.simulator import RunPodSimulator
from spawn.runpod.wire import served


class TestRunPodSpawner(SpawnerContract, PoolListContract, VolumeContract):
    @pytest.fixture
    async def simulator(self) -> AsyncIterator[RunPodSimulator]:
        simulator = RunPodSimulator(SystemClock(), starts_in=timedelta(milliseconds=60), volumes={"vol1": 100})
        yield simulator
        assert simulator.violations == []

    @pytest.fixture
    async def spawner(self, simulator: RunPodSimulator) -> AsyncIterator[RunPodSpawner]:
        async with served(simulator) as url:
            settings = RunPodSettings(image="drumbeat/worker:1", max_price_per_hour=1, base_url=url, network_volume_id="vol1")
            async with RunPodSpawner(settings, STORE, variables=VARIABLES) as spawner:
                yield spawner

    @pytest.fixture
    def volume(self) -> str:
        return "vol1"

    @pytest.fixture
    def order(self, simulator: RunPodSimulator) -> OrderFactory:
        def make(worker_id: WorkerId, pool_id: PoolId, *, exits: int | None = None, startable: bool = True) -> Order:
            assert exits is None, "RunPod tells no exit codes"
            if not startable:
                simulator.faults.append(Answers(operation="createPod", status=422, detail="no such image"))
            return make_order(worker_id, pool_id)

        return make

    async def test_an_answer_lost_on_a_real_socket_is_found_by_looking(
        self, simulator: RunPodSimulator, spawner: RunPodSpawner
    ) -> None:
        simulator.faults.append(Answers(operation="createPod", status=504, done=True))

        instance = await spawner.spawn(make_order())

        assert [pod.id for pod in simulator.alive()] == [instance.ref]
        assert len(simulator.asked("createPod")) == 1
