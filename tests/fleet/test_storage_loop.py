"""Whole beats of a fleet whose rented volume runs full: what workers tell becomes a size at the provider, or an error told."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, pool
from drumbeat.core.worker import Worker, WorkerId
from drumbeat.fleet.model import FleetPolicy
from drumbeat.runtime.beat import BeatReport
from drumbeat.settings import Settings
from drumbeat.spawn.runpod import RunPodSettings, RunPodSpawner
from drumbeat.store.contract.given import active, heartbeat
from drumbeat.store.memory import MemoryStore
from simulate.virtual_time import VirtualClock, run_virtually
from spawn.runpod.faults import Answers, Fault, Loses
from spawn.runpod.rig import STORE, VARIABLES
from spawn.runpod.simulator import RunPodSimulator
from spawn.runpod.wire import SimulatedWire

POOL, W0 = PoolId("p"), WorkerId("worker-0")
SIZE = "updateNetworkVolume"
POLICY = FleetPolicy(workers=1, storage_max_gb=230)


class Rented:
    """One worker on a volume of 100 GB that it fills to the last 10, however large it is."""

    def __init__(self, clock: VirtualClock, spawner: RunPodSpawner, simulator: RunPodSimulator) -> None:
        self.store = MemoryStore(clock)
        self.simulator = simulator
        self.spawner = spawner
        self.plane = ControlPlane(Settings(store="memory:", state_dir=Path("/dev/null/state")), self.store, clock)
        self.loop = self.plane.fleets.loop(POOL, spawner, POLICY.every)
        self.worker: Worker | None = None

    async def begin(self) -> None:
        home = await self.store.pools.create(pool(POOL, PoolKind.FLEET, PRESETS[PoolKind.FLEET], **POLICY.to_json()))
        await self.loop.beat()
        self.worker = await active(self.store, home, W0)

    async def beats(self, count: int) -> Sequence[BeatReport]:
        return [await self._beat() for _ in range(count)]

    async def _beat(self) -> BeatReport:
        await asyncio.sleep(POLICY.every.total_seconds())
        await self.tell()
        return await self.loop.beat()

    async def tell(self) -> None:
        assert self.worker is not None
        disk = {"path": "/workspace", "volume": "vol1", "total_gb": float(self.simulator.volumes["vol1"]), "free_gb": 10.0}
        await self.store.membership.beat(heartbeat(self.worker, gpu={"disk": disk}))


@asynccontextmanager
async def rented(*faults: Fault) -> AsyncIterator[Rented]:
    clock = VirtualClock()
    simulator = RunPodSimulator(clock, volumes={"vol1": 100}, faults=[*faults])
    settings = RunPodSettings(image="i", max_price_per_hour=1.0, network_volume_id="vol1")
    async with RunPodSpawner(settings, STORE, clock, VARIABLES, SimulatedWire(simulator)) as spawner:
        fleet = Rented(clock, spawner, simulator)
        await fleet.begin()
        yield fleet
    assert simulator.violations == []


def deeds(reports: Sequence[BeatReport], kind: str) -> list[tuple[int, Any]]:
    """In which beat, and how it failed."""
    return [(n, each.get("error")) for n, one in enumerate(reports) for each in one.actions if each["type"] == kind]


def test_a_volume_grows_every_ten_beats_to_its_bound_and_then_somebody_is_told() -> None:
    async def story() -> None:
        async with rented() as fleet:
            reports = await fleet.beats(45)

            assert deeds(reports, "ExpandVolume") == [(0, None), (10, None), (20, None)]
            assert [call.body["size"] for call in fleet.simulator.asked(SIZE)] == [150, 200, 230]
            assert deeds(reports, "Warn") == [(30, None), (40, None)]
            assert "expansion is limited to 230 GB (storage_max_gb)" in reports[30].actions[0]["reason"]

    run_virtually(story())


@pytest.mark.parametrize(
    ("fault", "size", "said"),
    [
        (Loses(operation=SIZE, times=3), 150, "the connection broke"),
        (Loses(operation=SIZE, times=3, done=False), 100, "the connection broke"),
        (Answers(operation=SIZE, status=422, detail="no"), 100, "HTTP 422: no"),
        (Answers(operation=SIZE, status=402, detail="no"), 100, "HTTP 402: no"),
        (Answers(operation="getNetworkVolume", status=404, detail="no"), 100, "HTTP 404: no"),
    ],
    ids=str,
)
def test_a_failure_is_in_the_beats_row_and_stops_nothing(fault: Fault, size: int, said: str) -> None:
    async def story() -> None:
        async with rented(fault) as fleet:
            [report] = await fleet.beats(1)
            [(_, error)] = deeds([report], "ExpandVolume")
            assert said in error
            assert (report.error, fleet.simulator.volumes) == (None, {"vol1": size})

            reports = await fleet.beats(10)
            assert deeds(reports, "ExpandVolume") == [(9, None)]
            assert fleet.simulator.volumes == {"vol1": size + 50}
            assert all(one.led and one.error is None for one in reports)

    run_virtually(story())


def test_workers_that_do_not_see_a_new_size_buy_no_more_and_somebody_is_told() -> None:
    async def story() -> None:
        async with rented() as fleet:
            await fleet.beats(1)
            assert fleet.simulator.volumes == {"vol1": 150}
            seen, fleet.simulator.volumes = fleet.simulator.volumes, {"vol1": 100}
            await fleet.tell()
            fleet.simulator.volumes = seen
            for _ in range(9):
                await asyncio.sleep(30)
                await fleet.loop.beat()
            await asyncio.sleep(30)
            report = await fleet.loop.beat()

            assert deeds([report], "ExpandVolume") == [(0, None)]
            assert "an earlier request for 150 GB had no effect" in report.actions[-1]["reason"]
            assert (fleet.simulator.volumes, len(fleet.simulator.asked(SIZE))) == ({"vol1": 150}, 1)

    run_virtually(story())


def test_a_plan_tells_of_it_and_asks_for_nothing() -> None:
    async def story() -> None:
        async with rented() as fleet:
            await fleet.tell()

            plan = await fleet.plane.fleet(POOL).plan(fleet.spawner)

            assert any(line.startswith("ExpandVolume worker-0: vol1: 10 of 100 GB free") for line in plan.actions)
            assert [call for call in fleet.simulator.calls if "Volume" in call.operation] == []

    run_virtually(story())


def test_what_was_done_can_be_explained_and_decided_again() -> None:
    async def story() -> None:
        async with rented(Answers(operation=SIZE, status=422, detail="no")) as fleet:
            await fleet.beats(1)
            found = await fleet.plane.fleet(POOL).explain()
            await fleet.beats(24)
            again = await fleet.plane.fleet(POOL).replay(POLICY.every * 100, {})

            assert found.inputs["disk_free_gb"] == [10.0, 100.0]
            [line] = [each for each in found.actions if each.startswith("ExpandVolume")]
            assert "to 150 GB [not done: " in line
            assert "HTTP 422: no" in line
            assert (again.beats, again.share) == (26, 1.0)

    run_virtually(story())
