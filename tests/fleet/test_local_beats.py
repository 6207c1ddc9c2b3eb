"""Single beats notice a local process that died as a daemon does: at the next beat, and in its own pool alone."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from bystanders import add_bystanders, bystanders
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import SystemClock
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, pool
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.fleet.model import FleetPolicy
from drumbeat.runtime.beat import BeatReport
from drumbeat.settings import Settings
from drumbeat.spawn.local import LocalSpawner
from drumbeat.spawn.tagged import is_recorded_running
from drumbeat.store import open_store
from spawn.programs import eventually

MINE = PoolId("mine")
POLICY = FleetPolicy(workers=1)
SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")


class Cron:
    """A beat a minute, each by a process that knows nothing but store and folder."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder

    def spawner(self) -> LocalSpawner:
        return LocalSpawner(self.folder, {}, command=SLEEPER, survive=True)

    async def beat(self) -> BeatReport:
        async with self.spawner() as spawner:
            loop = self.plane.fleets.loop(MINE, spawner, POLICY.every)
            report = await loop.beat()
            await loop.resign()
        return report

    async def row(self, name: str) -> Worker:
        (found,) = [each for each in await self.plane.store.workers.list(MINE) if each.worker_id == name]
        return found

    async def running(self) -> dict[str, str]:
        async with self.spawner() as spawner:
            return {str(one.worker_id): one.ref for one in await spawner.list(MINE)}


async def killed(cron: Cron, store: Any) -> None:
    await cron.beat()
    (ref,) = (await cron.running()).values()
    os.kill(int(ref.partition(":")[0]), signal.SIGKILL)
    eventually(lambda: not is_recorded_running(ref), "the worker is gone")
    beside = await bystanders(store)

    report = await cron.beat()

    assert [deed["type"] for deed in report.actions][:1] == ["MarkFailed"]
    assert (await cron.row("worker-0")).status is WorkerStatus.ERROR
    await cron.beat()
    assert (await cron.row("worker-0")).reaped_at is not None
    assert list(await cron.running()) == ["worker-1"]
    assert await bystanders(store) == beside


@pytest.mark.timeout(120)
async def test_a_single_beat_notices_a_killed_process_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/drumbeat.db"
    async with open_store(url, create=True) as store:
        await store.pools.create(pool(MINE, PoolKind.FLEET, PRESETS[PoolKind.FLEET], **POLICY.to_json()))
        await add_bystanders(store)
        cron = Cron(ControlPlane(Settings(store=url, state_dir=tmp_path), store, SystemClock()), tmp_path / "state")
        try:
            await killed(cron, store)
        finally:
            async with cron.spawner() as spawner:
                for one in await spawner.list(MINE):
                    await spawner.terminate(MINE, one.worker_id)
