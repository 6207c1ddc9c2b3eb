"""A fleet that is kept running: what is changed in its policy meanwhile is followed."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.cli.fleet_beats import _beat_by, _Teller
from drumbeat.control_plane import ControlPlane
from drumbeat.core.clock import SystemClock
from drumbeat.core.pool import PoolId
from drumbeat.fleet.model import FleetPolicy
from drumbeat.settings import Settings
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store.memory import MemoryStore

POOL = PoolId("p")
BRISK = timedelta(milliseconds=100)


@pytest.fixture
def places() -> dict[str, FakeSpawner]:
    return {name: FakeSpawner(SystemClock()) for name in ("local", "runpod")}


@pytest.fixture
def plane(tmp_path: Path, places: dict[str, FakeSpawner], monkeypatch: pytest.MonkeyPatch) -> ControlPlane:
    plane = ControlPlane(Settings(store="memory:", state_dir=tmp_path), MemoryStore(SystemClock()), SystemClock())
    monkeypatch.setattr(plane, "spawner", places.__getitem__)
    return plane


@pytest.mark.parametrize(
    "changed",
    [FleetPolicy(provider="runpod", workers=1, every=BRISK), FleetPolicy(workers=1, every=2 * BRISK)],
    ids=["provider", "pace"],
)
async def test_another_provider_or_pace_ends_the_loop_that_was_begun_without_it(
    plane: ControlPlane, places: dict[str, FakeSpawner], changed: FleetPolicy
) -> None:
    begun = FleetPolicy(workers=0, every=BRISK)
    await plane.create_fleet(POOL, begun)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        beating = group.create_task(_beat_by(plane, POOL, begun, _Teller()))
        while await plane.store.beats.last(POOL) is None:
            await asyncio.sleep(BRISK.total_seconds())
        await plane.set_fleet_policy(POOL, changed)

    assert beating.result() == changed
    assert places["local"].running(POOL) == ([] if changed.provider == "runpod" else ["worker-0"])
    assert places["runpod"].running(POOL) == []
