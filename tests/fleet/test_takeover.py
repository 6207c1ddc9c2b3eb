"""A controller that was killed is followed within two beats, by the clock of the store; one that is only slow is not."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, pool
from drumbeat.fleet.model import Action, FleetPolicy, FleetView
from drumbeat.runtime.beat import ControlLoop
from drumbeat.settings import Settings
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.spawn.interface import Instance, Order
from drumbeat.store.memory import MemoryStore
from simulate.virtual_time import VirtualClock, run_virtually

POOLS = MINE, *OTHERS = (PoolId("mine"), PoolId("beside"), PoolId("beside-too"))
EVERY = timedelta(seconds=30)


class Slow(FakeSpawner):
    """Takes its time to start a worker."""

    def __init__(self, clock: VirtualClock, takes: timedelta) -> None:
        super().__init__(clock)
        self.clock, self.takes = clock, takes

    async def spawn(self, order: Order) -> Instance:
        await self.clock.sleep(self.takes)
        return await super().spawn(order)


class Controllers:
    """Two controllers of each of three fleets, whose workers have the same names; the second begins a while after the first."""

    def __init__(self, every: timedelta = EVERY, takes: timedelta = timedelta()) -> None:
        self.every = every
        self.clock = VirtualClock()
        self.store = MemoryStore(self.clock)
        self.plane = ControlPlane(Settings(store="memory:", state_dir=Path("/dev/null/state")), self.store, self.clock)
        self.spawner = Slow(self.clock, takes)
        self.tasks: dict[tuple[PoolId, int], asyncio.Task[None]] = {}
        self.stop = asyncio.Event()

    async def begin(self, group: asyncio.TaskGroup, later: timedelta) -> None:
        policy = FleetPolicy(workers=2, every=self.every)
        for name in POOLS:
            await self.store.pools.create(pool(name, PoolKind.FLEET, PRESETS[PoolKind.FLEET], **policy.to_json()))
        for n in range(2):
            for name in POOLS:
                self.tasks[name, n] = group.create_task(self._run(name))
            await self.clock.sleep(later)

    async def _run(self, name: PoolId) -> None:
        loop: ControlLoop[FleetView, Action] = self.plane.fleets.loop(name, self.spawner, self.every)
        loop.resign = _nothing  # type: ignore[method-assign]  # one that is killed says nothing
        with suppress(asyncio.CancelledError):
            await loop.run(self.stop)

    async def owners(self, name: PoolId) -> list[str]:
        return list(dict.fromkeys(beat.owner for beat in await self.store.beats.list(name)))

    async def taken_over_in(self) -> timedelta:
        """How long after the leader is killed another has beaten."""
        self.tasks[MINE, 0].cancel()
        began = self.clock.elapsed()
        while len(await self.owners(MINE)) < 2:
            await self.clock.sleep(timedelta(milliseconds=100))
            assert self.clock.elapsed() - began < 10 * self.every
        return self.clock.elapsed() - began


async def _nothing() -> None:
    return None


@pytest.mark.parametrize("every", [timedelta(seconds=1), EVERY, timedelta(minutes=10)], ids=str)
@pytest.mark.parametrize("phase", [0.001, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("later", [0.01, 0.4, 0.8])
def test_another_leads_within_two_beats_after_a_kill(every: timedelta, phase: float, later: float) -> None:
    async def story() -> None:
        async with asyncio.TaskGroup() as group:
            controllers = Controllers(every)
            await controllers.begin(group, every * later)
            due = 3 * every - controllers.clock.elapsed()
            await controllers.clock.sleep(due + every * phase)

            assert await controllers.taken_over_in() <= 2 * every + timedelta(milliseconds=200)
            assert [len(await controllers.owners(name)) for name in OTHERS] == [1, 1]
            for task in controllers.tasks.values():
                task.cancel()

    run_virtually(story())


def test_a_leader_whose_action_takes_longer_than_its_lease_goes_on_leading() -> None:
    async def story() -> None:
        async with asyncio.TaskGroup() as group:
            controllers = Controllers(takes=timedelta(seconds=59))
            await controllers.begin(group, EVERY / 2)
            await controllers.clock.sleep(20 * EVERY)

            assert [len(await controllers.owners(name)) for name in POOLS] == [1, 1, 1]
            assert [beat.error for name in POOLS for beat in await controllers.store.beats.list(name) if beat.error] == []
            for task in controllers.tasks.values():
                task.cancel()

    run_virtually(story())
