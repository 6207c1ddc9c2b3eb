"""A worker tells how full its volume is, and nothing where it has none; a mount that hangs does not silence it."""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from drumbeat.core.clock import ManualClock, SystemClock
from drumbeat.core.pool import PRESETS, PoolKind, pool
from drumbeat.core.worker import Worker
from drumbeat.runtime import disk as disk_module
from drumbeat.runtime.disk import READ_EVERY, DiskProbe, find_disk
from drumbeat.runtime.probe import Probe, Reading
from drumbeat.runtime.snapshot import with_gpus
from drumbeat.runtime.worker import WorkerLifecycle
from drumbeat.spawn.interface import Instance, InstanceState
from drumbeat.store import Store, open_store
from drumbeat.store.interface import JoinRequest
from runtime.given import ME, POOL, FakeWorkload, seconds

USAGE = SimpleNamespace(total=100_000_000_000, used=70_000_000_000, free=12_345_000_000)
TOLD = {"path": "/workspace", "volume": "vol1", "total_gb": 100.0, "free_gb": 12.345}


class AtOnce:
    """A thread whose work is done when it starts."""

    def __init__(self, target: Callable[[], None], name: str, daemon: bool) -> None:
        self.start = target

    def is_alive(self) -> bool:
        return False


class Mount:
    """A volume that can be looked at."""

    def __init__(self) -> None:
        self.looks: list[str] = []
        self.fails = False

    def usage(self, path: str) -> Any:
        self.looks.append(path)
        if self.fails:
            raise FileNotFoundError(path)
        return USAGE


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch) -> Mount:
    mount = Mount()
    monkeypatch.setattr(disk_module, "Thread", AtOnce)
    monkeypatch.setattr(shutil, "disk_usage", mount.usage)
    return mount


def test_the_volume_is_told_by_what_its_provider_calls_it(mount: Mount) -> None:
    found = find_disk({"DRUMBEAT_VOLUME_PATH": "/workspace", "DRUMBEAT_VOLUME_ID": "vol1"}, ManualClock())

    assert found is not None
    assert found.read() == TOLD


def test_one_without_a_name_is_told_by_its_path(mount: Mount) -> None:
    found = find_disk({"DRUMBEAT_VOLUME_PATH": "/data", "DRUMBEAT_VOLUME_ID": ""}, ManualClock())

    assert found is not None
    assert found.read() == {"path": "/data", "total_gb": 100.0, "free_gb": 12.345}


@pytest.mark.parametrize("environment", [{}, {"DRUMBEAT_VOLUME_PATH": ""}, {"DRUMBEAT_VOLUME_ID": "vol1"}], ids=str)
def test_where_no_volume_was_told_nothing_is_reported(environment: dict[str, str]) -> None:
    clock = ManualClock()

    assert find_disk(environment, clock) is None
    assert Probe(clock).read().devices is None


async def test_it_is_looked_at_once_a_minute_however_often_it_is_read(mount: Mount) -> None:
    clock = ManualClock()
    probe = DiskProbe("/workspace", "vol1", clock)
    for _ in range(120):
        assert probe.read() == TOLD
        await clock.advance(seconds(1))

    assert mount.looks == ["/workspace"] * 2


async def test_a_volume_that_cannot_be_read_is_not_told_of_until_it_can(mount: Mount) -> None:
    clock = ManualClock()
    probe = DiskProbe("/workspace", "vol1", clock)
    told = []
    for mount.fails in (False, True, False):
        told.append(probe.read())
        await clock.advance(READ_EVERY)

    assert told == [TOLD, None, TOLD]


async def test_a_mount_that_hangs_keeps_nobody_waiting_and_one_thread_at_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, comes_back, clock = list[str](), Event(), ManualClock()

    def hang(path: str) -> Any:
        looks.append(path)
        assert comes_back.wait(60)
        return USAGE

    monkeypatch.setattr(shutil, "disk_usage", hang)
    probe = DiskProbe("/workspace", "vol1", clock)
    for _ in range(3):
        assert probe.read() is None
        await clock.advance(READ_EVERY)
    comes_back.set()
    _join(probe)

    assert looks == ["/workspace"]
    assert probe.read() == TOLD
    _join(probe)


def _join(probe: DiskProbe) -> None:
    assert probe._thread is not None
    probe._thread.join(60)


@pytest.mark.parametrize(
    ("reading", "told"),
    [
        (Reading(), None),
        (Reading(gpu={"memory_percent": 5.0}), {"memory_percent": 5.0}),
        (Reading(disk=TOLD), {"disk": TOLD}),
        (Reading(gpu={"memory_percent": 5.0}, disk=TOLD), {"memory_percent": 5.0, "disk": TOLD}),
    ],
)
def test_a_heartbeat_tells_the_disk_beside_the_gpu(reading: Reading, told: dict[str, Any] | None) -> None:
    assert reading.devices == told


async def test_a_real_worker_tells_its_disk_to_a_real_store(tmp_path: Path) -> None:
    clock, environment = SystemClock(), {"DRUMBEAT_VOLUME_PATH": str(tmp_path), "DRUMBEAT_VOLUME_ID": "vol1"}
    quick = replace(PRESETS[PoolKind.JOBS], heartbeat_every=seconds(0.02))
    async with open_store(f"sqlite:///{tmp_path}/store.db", create=True) as store, asyncio.TaskGroup() as group:
        await store.pools.create(pool(POOL, PoolKind.JOBS, quick))
        identity = JoinRequest(pool_id=POOL, worker_id=ME, slot=0, instance="i", host="h", pid=1)
        probe, workload = Probe(clock, disk=find_disk(environment, clock)), FakeWorkload(clock=clock)
        life = WorkerLifecycle(store, identity, quick, workload, clock=clock, probe=probe, gated=False)
        task = group.create_task(life.run())
        told = await _told(store, clock)
        life.request_stop("seen enough")
        assert await task == 0

    size = shutil.disk_usage(tmp_path).total / 1e9
    assert (told["volume"], told["path"]) == ("vol1", str(tmp_path))
    assert told["total_gb"] == pytest.approx(size, abs=0.01)
    assert 0 <= told["free_gb"] <= size


async def _told(store: Store, clock: SystemClock) -> dict[str, Any]:
    """What the worker's row says of its disk, once it does."""
    deadline = clock.elapsed() + seconds(30)
    while True:
        rows = await store.workers.list(POOL)
        if rows and rows[0].gpu is not None and "disk" in rows[0].gpu:
            return dict(rows[0].gpu["disk"])
        assert clock.elapsed() < deadline, rows
        await clock.sleep(seconds(0.02))


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        (None, {"memory_total_mb": 24576, "memory_used_mb": 12288}),
        ({"disk": TOLD}, {"memory_total_mb": 24576, "memory_used_mb": 12288, "disk": TOLD}),
        ({"memory_total_mb": 1, "disk": TOLD}, {"memory_total_mb": 1, "disk": TOLD}),
    ],
    ids=["nothing", "its disk alone", "its own GPU"],
)
def test_a_worker_that_tells_of_its_disk_alone_is_still_given_its_providers_gpu(
    said: dict[str, Any] | None, seen: dict[str, Any]
) -> None:
    row = Worker(pool_id=POOL, worker_id=ME, slot=0, gpu=said)
    meta = {"gpus": [{"memory_total_gb": 24, "memory_used_gb": 12}]}
    pod = Instance(pool_id=POOL, worker_id=ME, ref="pod1", state=InstanceState.RUNNING, meta=meta)

    assert with_gpus([row], [pod])[0].gpu == seen
