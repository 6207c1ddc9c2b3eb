"""Whoever beats one fleet ends what was forgotten in every pool of the store, and nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from bystanders import add_bystanders, bystanders
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import ManualClock
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, pool
from drumbeat.core.recovery import LINGER
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.fleet.model import FleetPolicy
from drumbeat.fleet.settings import VARIABLES
from drumbeat.fleet.sweep import SWEPT_EVERY, Sweep
from drumbeat.settings import Settings
from drumbeat.spawn.fake import FakeSpawner, ListFails, TerminateRefused
from drumbeat.spawn.interface import Order, SpawnerTraits
from drumbeat.store.contract.given import active, joined, moved
from drumbeat.store.interface import PoolChange
from drumbeat.store.memory import MemoryStore

POOLS = MINE, FORGOTTEN, LED, GONE = [PoolId(name) for name in ("mine", "forgotten", "led", "gone")]
W0, W1, W2 = (WorkerId(f"worker-{n}") for n in range(3))


class Shared(FakeSpawner):
    """A provider whose account other stores may use too."""

    @property
    def traits(self) -> SpawnerTraits:
        return replace(super().traits, name="runpod")


class Owning(FakeSpawner):
    """One that shows only what was started for this store."""

    @property
    def traits(self) -> SpawnerTraits:
        return replace(super().traits, owns_all=True)


class Scene:
    """Four pools whose workers have the same names: one is beaten, one forgotten, one led by another, one deleted.

    In each worker-0 is well, worker-1 has ended, worker-2 has no row; and all of them run.
    """

    def __init__(self, spawner: type[FakeSpawner] = Shared) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.spawner = spawner(self.clock)
        self.plane = ControlPlane(Settings(store="memory:", state_dir=Path("/dev/null/state")), self.store, self.clock)
        self.plane.spawner = lambda engines: self.spawner  # type: ignore[method-assign]

    async def open(self) -> "Scene":
        for name in POOLS:
            await self._fill(name)
        await self.clock.advance(LINGER)
        assert await self.store.leases.acquire(LED, "another", timedelta(hours=1))
        await add_bystanders(self.store)
        return self

    async def _fill(self, name: PoolId) -> None:
        for slot, worker_id in enumerate((W0, W1, W2)):
            await self.spawner.spawn(Order(pool_id=name, worker_id=worker_id, slot=slot, group_count=3))
        if name == GONE:
            return
        policy = FleetPolicy(workers=1, provider="runpod")
        home = await self.store.pools.create(pool(name, PoolKind.FLEET, PRESETS[PoolKind.FLEET], **policy.to_json()))
        await active(self.store, home, W0)
        await moved(self.store, await joined(self.store, home, W1, 1), WorkerStatus.ERROR)

    def sweep(self) -> Sweep:
        return Sweep(store=self.store, spawner=self.spawner, clock=self.clock, owner=lambda: "a", place="here")

    async def turn_local(self, name: PoolId) -> None:
        await self.store.pools.change(name, PoolChange(policy={"provider": "local"}))

    def running(self) -> Mapping[PoolId, Sequence[WorkerId]]:
        return {name: self.spawner.running(name) for name in POOLS}


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in VARIABLES:
        monkeypatch.delenv(each.name, raising=False)


async def test_a_beat_of_one_fleet_ends_what_was_forgotten_in_another() -> None:
    scene = await Scene().open()
    beside = await bystanders(scene.store)

    await scene.plane.fleets.beat(MINE)

    assert scene.running() == {MINE: [W0], FORGOTTEN: [W0], LED: [W0, W1, W2], GONE: [W0, W1, W2]}
    (row,) = await scene.store.beats.list(FORGOTTEN)
    assert sorted(deed["type"] for deed in row.actions) == ["EndStray", "Reap"]
    assert (row.view, row.is_check, row.failed) == (None, True, False)
    assert (await scene.store.workers.get(FORGOTTEN, W1)).reaped_at is not None
    assert await scene.store.beats.list(LED) == []
    assert await bystanders(scene.store) == beside


async def test_what_can_only_be_ours_is_ended_though_its_pool_was_deleted() -> None:
    scene = await Scene(Owning).open()

    await scene.plane.fleets.beat(MINE)

    assert scene.running()[GONE] == []


async def test_it_is_done_now_and_then_and_not_with_every_beat() -> None:
    scene = await Scene().open()
    await scene.plane.fleets.beat(MINE)
    await scene.spawner.spawn(Order(pool_id=FORGOTTEN, worker_id=W2, slot=2, group_count=3))

    await scene.plane.fleets.beat(MINE)
    assert scene.running()[FORGOTTEN] == [W0, W2]
    await scene.clock.advance(SWEPT_EVERY)
    await scene.plane.fleets.beat(MINE)

    assert scene.running()[FORGOTTEN] == [W0]


async def test_a_provider_that_gives_no_list_fails_no_beat() -> None:
    scene = await Scene().open()
    sweep = scene.sweep()
    scene.spawner.faults.append(ListFails(times=9))

    assert await sweep.if_due(MINE) == {}
    assert scene.running()[FORGOTTEN] == [W0, W1, W2]


async def test_a_worker_that_has_just_left_may_end_by_itself() -> None:
    scene = await Scene().open()
    await moved(scene.store, await scene.store.workers.get(FORGOTTEN, W0), WorkerStatus.TERMINATED)
    sweep = scene.sweep()

    await sweep.all_but(MINE)
    at_once = scene.running()[FORGOTTEN]
    await scene.clock.advance(LINGER)
    await sweep.all_but(MINE)

    assert (at_once, scene.running()[FORGOTTEN]) == ([W0], [])


async def test_a_pool_of_another_provider_only_shares_its_name_with_what_runs(caplog: pytest.LogCaptureFixture) -> None:
    scene = await Scene().open()
    await scene.turn_local(FORGOTTEN)

    await scene.sweep().all_but(MINE)

    assert scene.running()[FORGOTTEN] == [W0, W1, W2]
    assert await scene.store.beats.list(FORGOTTEN) == []
    assert "of pool forgotten runs and may cost money, but this store has no such worker" in caplog.text


async def test_a_pool_that_has_left_its_provider_is_swept_for_the_workers_it_had_there() -> None:
    scene = await Scene().open()
    await scene.turn_local(FORGOTTEN)
    await scene.store.workers.add([Worker(pool_id=FORGOTTEN, worker_id=W2, slot=2, provider="runpod")])
    row = await scene.store.workers.get(FORGOTTEN, W2)
    await scene.store.workers.move(row, WorkerStatus.LOST, "it is silent")

    await scene.sweep().all_but(MINE)

    assert scene.running()[FORGOTTEN] == [W0]


async def test_what_one_pool_fails_with_keeps_no_other_from_being_swept() -> None:
    scene = await Scene(Owning).open()
    scene.spawner.faults += [ListFails(), TerminateRefused(worker_id=W0)]

    await scene.sweep().all_but(MINE)

    assert scene.running() == {MINE: [W0, W1, W2], FORGOTTEN: [W0, W1, W2], LED: [W0, W1, W2], GONE: [W0]}
