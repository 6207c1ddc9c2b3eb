"""The composition root: what it makes, and what it refuses."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.composition.base import process_name
from drumbeat.composition.plane import ControlPlane, WorkerArguments, open_control_plane
from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import AlreadyExists, InvalidInput, InvalidSettings, NotFound, StoreNotReady
from drumbeat.core.event import EventType, start, stop
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, PoolRow, pool
from drumbeat.core.worker import ExitCode, WorkerId, WorkerStatus
from drumbeat.fleet.model import FleetPolicy
from drumbeat.pool.service import FOREVER
from drumbeat.settings import Settings
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store import open_store
from drumbeat.store.interface import PoolChange
from drumbeat.store.memory import MemoryStore

POOL = PoolId("p")
SECOND = timedelta(seconds=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def plane(clock: ManualClock, tmp_path: Path) -> ControlPlane:
    return ControlPlane(Settings(store="memory:", state_dir=tmp_path / "state"), MemoryStore(clock), clock)


@pytest.fixture
async def file_plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    settings = Settings(store=f"sqlite:///{tmp_path}/drumbeat.db", state_dir=tmp_path)
    async with open_control_plane(settings, create=True) as plane:
        yield plane


def arguments(group: int = 0, count: int = 1, run_id: str = POOL) -> WorkerArguments:
    return WorkerArguments(run_id=run_id, worker_id="w", worker_group_id=group, worker_group_count=count)


async def test_a_fleet_is_a_pool_that_has_been_told_to_start(plane: ControlPlane) -> None:
    made = await plane.fleets.create("p", FleetPolicy(workers=3, target=2))

    limits = replace(PRESETS[PoolKind.FLEET], controller_gone_after=timedelta(minutes=10))
    assert (made.kind, made.thresholds) == (PoolKind.FLEET, limits)
    assert FleetPolicy.from_json(made.policy) == FleetPolicy(workers=3, target=2)
    (told,) = await plane.store.events.read(POOL, 0)
    assert (told.type, told.payload) == (EventType.START, {"expected_workers": 3})


CHANGES: Mapping[str, Callable[[ControlPlane], Awaitable[object]]] = {
    "scale_pool": lambda plane: plane.fleets.scale_pool(POOL, FleetPolicy(workers=2)),
    "set_fleet_policy": lambda plane: plane.fleets.set_policy(POOL, FleetPolicy(workers=2)),
    "heed_environment": lambda plane: plane.fleets.apply_environment(POOL),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_pause_in_the_midst_of_another_policy_stays(
    plane: ControlPlane, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await plane.store.pools.create(pool(POOL, PoolKind.JOBS, workers=1, keep_idle=5, policy="queue_cover"))
    monkeypatch.setenv("MACHINES_TO_KEEP_IDLE", "2")

    async def overtaken(_: object) -> PoolRow:
        await plane.store.pools.change(POOL, PoolChange(paused_until=FOREVER))
        return made

    for look in ("find", "get"):
        monkeypatch.setattr(plane.store.pools, look, overtaken)
    await CHANGES[change](plane)

    [kept] = await plane.store.pools.list()
    told = {"workers": 1, "keep_idle": 2} if change == "heed_environment" else {"workers": 2, "keep_idle": None}
    assert kept.paused_until == FOREVER
    assert {name: kept.policy.get(name) for name in told} == told


async def test_a_fleet_may_have_thresholds_of_its_own(plane: ControlPlane) -> None:
    made = await plane.fleets.create("p", FleetPolicy(), PRESETS[PoolKind.BENCH])

    assert made.thresholds == PRESETS[PoolKind.BENCH]


async def test_a_fleets_name_is_used_once(plane: ControlPlane) -> None:
    await plane.fleets.create("p", FleetPolicy())

    with pytest.raises(AlreadyExists):
        await plane.fleets.create("p", FleetPolicy())
    assert len(await plane.store.events.read(POOL, 0)) == 1


async def test_a_policy_is_changed_and_the_rest_stays(plane: ControlPlane) -> None:
    made = await plane.fleets.create("p", FleetPolicy(workers=1))

    changed = await plane.fleets.set_policy(POOL, FleetPolicy(workers=7, ramp=SECOND))

    assert replace(changed, policy=made.policy) == made
    assert FleetPolicy.from_json(changed.policy) == FleetPolicy(workers=7, ramp=SECOND)


async def test_a_pool_that_is_not_there_has_no_policy(plane: ControlPlane) -> None:
    with pytest.raises(NotFound):
        await plane.fleets.set_policy(POOL, FleetPolicy())


async def test_a_loop_observes_decides_and_acts(plane: ControlPlane, clock: ManualClock) -> None:
    await plane.fleets.create("p", FleetPolicy(workers=2))
    spawner = FakeSpawner(clock)

    report = await plane.fleets.loop(POOL, spawner, SECOND).beat()

    assert (report.led, report.error) == (True, None)
    assert [action["type"] for action in report.actions] == ["Spawn", "Spawn"]
    assert spawner.running(POOL) == ["worker-0", "worker-1"]


@pytest.mark.parametrize(("lease", "lasts"), [(None, 2 * SECOND), (60 * SECOND, 60 * SECOND)])
async def test_a_loops_lease_outlasts_a_beat(
    plane: ControlPlane, clock: ManualClock, lease: timedelta | None, lasts: timedelta
) -> None:
    await plane.fleets.create("p", FleetPolicy(workers=0))

    await plane.fleets.loop(POOL, FakeSpawner(clock), SECOND, lease).beat()

    held = await plane.store.leases.find(POOL)
    assert held is not None
    assert held.expires_at == clock.now() + lasts


async def test_of_two_loops_one_leads(plane: ControlPlane, clock: ManualClock) -> None:
    await plane.fleets.create("p", FleetPolicy(workers=2))
    spawner = FakeSpawner(clock)
    loops = [plane.fleets.loop(POOL, spawner, SECOND) for _ in range(2)]

    reports = [await loop.beat() for loop in loops]

    assert [report.led for report in reports] == [True, False]
    assert spawner.running(POOL) == ["worker-0", "worker-1"]


def test_no_two_names_of_a_process_are_the_same() -> None:
    assert len({process_name() for _ in range(100)}) == 100


@pytest.mark.parametrize(("group", "count"), [(-1, 1), (1, 1), (0, 0), (0, -3), (5, 3)])
def test_a_worker_outside_its_group_is_refused(group: int, count: int) -> None:
    with pytest.raises(InvalidInput, match=rf"\({count}\), got {group}$"):
        arguments(group, count)


async def test_a_check_deletes_what_is_over_and_old(file_plane: ControlPlane, tmp_path: Path) -> None:
    papers = file_plane.pool("papers")
    await papers.create(retention="jobs=1h")
    await papers.push_many(["old", "young"])
    for job in await papers.claim_many(2):
        await papers.complete(job)
    with closing(sqlite3.connect(tmp_path / "drumbeat.db", isolation_level=None)) as file:
        file.execute("UPDATE jobs SET finished_at = finished_at - 7200000000 WHERE payload = '\"old\"'")

    await file_plane.checker().check(papers.pool_id)

    assert [job.payload for job in await papers.list()] == ["young"]
    assert (await papers.status()).counts.done == 1


async def test_a_worker_needs_a_pool(file_plane: ControlPlane) -> None:
    with pytest.raises(NotFound, match="there is no pool 'p'"):
        await file_plane.run_worker(arguments())


async def test_a_worker_of_a_pool_of_jobs_needs_a_handler(file_plane: ControlPlane) -> None:
    await file_plane.store.pools.create(pool("p", PoolKind.JOBS))

    code = await file_plane.run_worker(arguments())

    (row,) = await file_plane.store.workers.list(POOL)
    assert code is ExitCode.CONFIGURATION
    assert "expected a handler, got none" in (row.error or "")


async def test_a_worker_lives_in_its_slot_until_told_to_stop(file_plane: ControlPlane) -> None:
    limits = replace(PRESETS[PoolKind.FLEET], heartbeat_every=timedelta(milliseconds=20))
    await file_plane.store.pools.create(pool("p", PoolKind.FLEET, limits))
    await file_plane.store.events.append(POOL, [start(3), stop("for an earlier worker", worker_id=WorkerId("w"))])

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        living = group.create_task(file_plane.run_worker(arguments(2, 3)))
        while not await file_plane.store.workers.list(POOL):
            await asyncio.sleep(0)
        await file_plane.store.events.append(POOL, [stop("enough", worker_id=WorkerId("w"))])

    (row,) = await file_plane.store.workers.list(POOL)
    assert living.result() is ExitCode.CLEAN
    assert (row.worker_id, row.slot, row.status) == ("w", 2, WorkerStatus.TERMINATED)


def test_a_local_spawner_makes_its_folder(plane: ControlPlane, tmp_path: Path) -> None:
    assert plane.local_spawner().traits.outlives_controller is False
    assert plane.local_spawner(survive=True).traits.outlives_controller is True
    assert (tmp_path / "state").is_dir()


def test_a_folder_that_cannot_be_made_is_a_wrong_setting(clock: ManualClock, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    plane = ControlPlane(Settings(store="memory:", state_dir=tmp_path / "file" / "state"), MemoryStore(clock), clock)

    with pytest.raises(InvalidSettings, match=r"file/state: .*; set DRUMBEAT_STATE_DIR"):
        plane.local_spawner()


def test_a_folder_that_may_not_be_written_is_a_wrong_setting(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)

    with pytest.raises(InvalidSettings, match=r"state: permission denied; set DRUMBEAT_STATE_DIR"):
        plane.local_spawner()


async def test_a_store_is_made_only_if_asked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/drumbeat.db"
    (tmp_path / "drumbeat.db").touch()
    with pytest.raises(StoreNotReady):
        async with open_control_plane(Settings(store=url)):
            pass

    async with open_control_plane(Settings(store=url), create=True) as plane:
        assert await plane.store.pools.list() == []
    async with open_store(url) as store:
        assert (await store.upkeep.check()).problems == []
