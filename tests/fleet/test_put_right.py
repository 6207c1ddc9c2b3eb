"""A provider that refuses is shown by plan and by alarms; once that is put right it is asked at once, in that pool alone."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, pool
from drumbeat.fleet.model import FleetPolicy
from drumbeat.runtime.beat import BeatReport
from drumbeat.settings import Settings
from drumbeat.spawn.runpod import API_KEY_VARIABLE, RunPodSettings, RunPodSpawner
from drumbeat.store.memory import MemoryStore
from simulate.virtual_time import VirtualClock, run_virtually
from spawn.runpod.faults import Answers
from spawn.runpod.rig import STORE
from spawn.runpod.simulator import KEY, RunPodSimulator
from spawn.runpod.wire import SimulatedWire

MINE, *OTHERS = POOLS = (PoolId("mine"), PoolId("beside"), PoolId("beside-too"))
EVERY = timedelta(seconds=30)
POLICY = FleetPolicy(workers=1, provider="runpod", every=EVERY)


class Account:
    """Three fleets of one worker each, all called worker-0, on one RunPod account."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.simulator = RunPodSimulator(self.clock, schema=None)
        self.plane = ControlPlane(Settings(store="memory:", state_dir=folder), self.store, self.clock)

    async def fill(self) -> None:
        for name in POOLS:
            await self.store.pools.create(pool(name, PoolKind.FLEET, PRESETS[PoolKind.FLEET], **POLICY.to_json()))
        for name in OTHERS:
            await self.beat(name)

    @asynccontextmanager
    async def spawner(self, key: str = KEY, image: str = "i") -> AsyncIterator[RunPodSpawner]:
        settings, wire = RunPodSettings(image=image, max_price_per_hour=2.0), SimulatedWire(self.simulator)
        async with RunPodSpawner(settings, STORE, self.clock, {API_KEY_VARIABLE: key}, wire, self.folder) as spawner:
            yield spawner

    async def beat(self, name: PoolId = MINE, **how: str) -> BeatReport:
        """A single beat by a process of its own, half a minute after the last."""
        await self.clock.sleep(EVERY)
        async with self.spawner(**how) as spawner:
            loop = self.plane.fleets.loop(name, spawner, EVERY)
            report = await loop.beat()
            await loop.resign()
        return report

    async def trouble(self, **how: str) -> str | None:
        async with self.spawner(**how) as spawner:
            return (await self.plane.fleet(MINE).plan(spawner)).provider_error

    def pods(self) -> Sequence[str]:
        return sorted(self.simulator.alive_names())

    async def beside(self) -> list[Any]:
        return [[await self.store.workers.list(name), await self.store.beats.list(name)] for name in OTHERS]


def test_a_corrected_key_is_tried_at_the_next_beat(tmp_path: Path) -> None:
    async def story() -> None:
        account = Account(tmp_path)
        await account.fill()
        beside, pods = await account.beside(), account.pods()

        refused = await account.beat(key="rpa_wrong")
        assert "HTTP 401" in str(await account.trouble(key="rpa_wrong"))
        waiting = await account.beat(key="rpa_wrong")
        assert "HTTP 401" in str(await account.trouble(key="rpa_wrong"))
        assert (account.pods(), await account.trouble()) == (pods, None)
        healed = await account.beat()

        assert [deed["type"] for deed in refused.actions] == ["Spawn"]
        assert [alarm.partition(":")[0] for alarm in refused.summary["alarms"]] == [
            "the provider failed to list its instances",
            "1 worker could not be started",
        ]
        assert [deed for deed in waiting.actions if deed["type"] == "Spawn"] == []
        assert any("failed once, last with auth: " in alarm and "HTTP 401" in alarm for alarm in waiting.summary["alarms"])
        assert ("alarms" in healed.summary, healed.summary["actions"]["workers_spawned"]) == (False, 1)
        assert account.pods() == sorted([*pods, "drumbeat.mine.worker-1"])
        assert await account.beside() == beside

    run_virtually(story())


@pytest.mark.parametrize("status", [402, 403, 422], ids=["no money", "the key may not", "a bad request"])
def test_what_was_put_right_elsewhere_is_tried_once_a_person_says_so(tmp_path: Path, status: int) -> None:
    async def story() -> None:
        account = Account(tmp_path)
        await account.fill()
        beside, pods = await account.beside(), account.pods()
        account.simulator.faults.append(Answers(operation="createPod", status=status, times=50))
        await account.beat()
        account.simulator.faults.clear()
        asked = len(account.simulator.asked("createPod"))
        await account.beat()
        assert (account.pods(), len(account.simulator.asked("createPod"))) == (pods, asked)

        await account.plane.fleet(MINE).retry()
        assert await account.trouble() is None
        healed = await account.beat()
        quiet = await account.beat()

        assert [deed["type"] for deed in healed.actions if "error" not in deed][:1] == ["ForgetRefusals"]
        assert quiet.actions == []
        assert account.pods() == sorted([*pods, "drumbeat.mine.worker-1"])
        assert await account.beside() == beside

    run_virtually(story())


def test_settings_that_were_changed_are_tried_at_the_next_beat(tmp_path: Path) -> None:
    async def story() -> None:
        account = Account(tmp_path)
        await account.fill()
        account.simulator.faults.append(Answers(operation="createPod", status=422, detail="no such image"))
        await account.beat(image="mispelt")

        healed = await account.beat(image="spelt")

        assert healed.summary["actions"]["workers_spawned"] == 1

    run_virtually(story())
