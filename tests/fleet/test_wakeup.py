"""A push wakes a fleet: its daemon beats before its time, and a trigger beats it where there is no daemon."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import Clock
from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import NewJob
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, pool
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.fleet.settings import VARIABLES
from drumbeat.pool.beats import MAX_WAIT
from drumbeat.settings import Settings
from drumbeat.spawn.fake import FakeSpawner, SpawnFails
from drumbeat.store.interface import PoolChange
from drumbeat.store.memory import MemoryStore
from drumbeat.triggers.model import BeatKind, Firing
from simulate.virtual_time import VirtualClock, run_virtually

POOLS = MINE, *OTHERS = (PoolId("mine"), PoolId("beside"), PoolId("beside-too"))
POLICY = FleetPolicy(policy=PolicyName.QUEUE_COVER, min_workers=0, max_workers=3)
MINUTE = timedelta(minutes=1)


class Fleets:
    """Three fleets with queues, on one clock, whose workers have the same names."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.store = MemoryStore(clock)
        self.plane = ControlPlane(Settings(store="memory:", state_dir=Path("/dev/null/state")), self.store, clock)
        self.spawner = FakeSpawner(clock)
        self.plane.spawner = lambda engines: self.spawner  # type: ignore[method-assign]

    async def make(self) -> None:
        for name in POOLS:
            await self.store.pools.create(pool(name, PoolKind.JOBS, PRESETS[PoolKind.FLEET], **POLICY.to_json()))

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for name in POOLS:
                group.create_task(self.plane.fleets.run(name, self.spawner, POLICY.every, stop))
            yield
            stop.set()

    async def beats(self, name: PoolId = MINE) -> int:
        return len(await self.store.beats.list(name))


def test_a_push_to_an_empty_queue_is_answered_with_a_beat_at_once_in_its_own_pool() -> None:
    async def story() -> None:
        fleets = Fleets(VirtualClock())
        await fleets.make()
        async with fleets.beating():
            await fleets.clock.sleep(POLICY.every * 3.5)
            before = [await fleets.beats(name) for name in POOLS]
            await fleets.store.queue.push(MINE, [NewJob(payload=n) for n in range(2)])
            await fleets.clock.sleep(POLICY.every / 10)

            assert [await fleets.beats(name) for name in POOLS] == [before[0] + 1, *before[1:]]
            assert fleets.spawner.running(MINE) == ["worker-0", "worker-1"]
            await fleets.store.queue.push(MINE, [NewJob(payload=n) for n in range(9)])
            await fleets.clock.sleep(POLICY.every / 10)
            assert await fleets.beats() == before[0] + 1
            await fleets.clock.sleep(POLICY.every)
            assert fleets.spawner.running(MINE) == ["worker-0", "worker-1", "worker-2"]

    run_virtually(story())


def test_however_many_are_pushed_and_claimed_beats_come_ten_times_as_often_at_most() -> None:
    async def story() -> None:
        fleets = Fleets(VirtualClock())
        await fleets.make()
        async with fleets.beating():
            for n in range(600):
                (job,) = await fleets.store.queue.push(MINE, [NewJob(payload=n)])
                await fleets.clock.sleep(timedelta(milliseconds=500))
                await fleets.store.jobs.cancel([job])
                await fleets.clock.sleep(timedelta(milliseconds=500))

            assert await fleets.beats() <= 10 * (600 / POLICY.every.total_seconds()) + 10

    run_virtually(story())


def test_jobs_that_nobody_may_claim_wake_nobody() -> None:
    async def story() -> None:
        fleets = Fleets(VirtualClock())
        await fleets.make()
        await fleets.store.queue.push(MINE, [NewJob(payload=1, capability="a kind of worker there is not")])
        async with fleets.beating():
            await fleets.clock.sleep(10 * MINUTE)

            assert await fleets.beats() <= 1 + 10 * MINUTE / POLICY.every + 1

    run_virtually(story())


def test_a_daemon_goes_on_after_its_pool_was_deleted_and_created_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        fleets = Fleets(VirtualClock())
        await fleets.make()

        async def polling(_: object, pool_id: PoolId, within: timedelta) -> bool:
            """Wait as SQL stores do, which look at the pool every few seconds."""
            until = fleets.clock.elapsed() + within
            while fleets.clock.elapsed() < until and not await fleets.store.jobs.size(pool_id):
                await fleets.store.pools.get(pool_id)
                await fleets.clock.sleep(timedelta(seconds=1))
            return fleets.clock.elapsed() < until

        monkeypatch.setattr(type(fleets.store.queue), "wait", polling)
        async with fleets.beating():
            await fleets.clock.sleep(POLICY.every * 1.5)
            await fleets.store.pools.delete(MINE)
            await fleets.clock.sleep(10 * MINUTE)
            await fleets.store.pools.create(pool(MINE, PoolKind.JOBS, PRESETS[PoolKind.FLEET], **POLICY.to_json()))
            await fleets.clock.sleep(POLICY.every * 1.5)
            await fleets.store.queue.push(MINE, [NewJob(payload=1)])
            await fleets.clock.sleep(POLICY.every / 10)

            assert fleets.spawner.running(MINE) == ["worker-0"]

    run_virtually(story())


def fired(firing: Firing, fleets: Fleets) -> dict[str, bool]:
    """What came of a firing: whether each fleet's beat went well."""

    async def story() -> dict[str, bool]:
        await fleets.make()
        for name in POOLS:
            await fleets.store.queue.push(name, [NewJob(payload=1)])
        return {name: report["error"] is None for name, report in (await fleets.plane.fired(firing)).items()}

    return run_virtually(story())


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in VARIABLES:
        monkeypatch.delenv(each.name, raising=False)


def test_a_trigger_beats_one_fleet_and_leaves_the_others() -> None:
    fleets = Fleets(VirtualClock())

    assert fired(Firing(trigger="t", machine=BeatKind.FLEET, pool_id=MINE), fleets) == {MINE: True}
    assert [fleets.spawner.asked("spawn"), {call.pool_id for call in fleets.spawner.calls}] == [["worker-0"], {MINE}]


def test_a_trigger_without_a_pool_beats_every_fleet_and_tells_what_failed() -> None:
    fleets = Fleets(VirtualClock())
    fleets.spawner.faults.append(SpawnFails())

    assert fired(Firing(trigger="t", machine=BeatKind.FLEET), fleets) == {MINE: False, **dict.fromkeys(OTHERS, True)}
    (note,) = run_virtually(fleets.store.notes.list("trigger/"))
    assert (note.value["ok"], "mine: failed: Spawn: worker worker-0: no capacity" in note.value["outcome"]) == (False, True)


def test_a_fleet_that_cannot_be_beaten_keeps_no_other_from_its_beat() -> None:
    fleets = Fleets(VirtualClock())

    async def story() -> dict[str, tuple[bool, bool]]:
        await fleets.make()
        await fleets.store.pools.change(MINE, PoolChange(policy={"max_workers": -1}))
        reports = await fleets.plane.fired(Firing(trigger="t", machine=BeatKind.FLEET))
        return {name: (report["led"], "max_workers" in str(report["error"])) for name, report in reports.items()}

    assert run_virtually(story()) == {MINE: (False, True), **dict.fromkeys(OTHERS, (True, False))}


def test_a_beat_that_is_fired_waits_for_the_one_that_acts() -> None:
    fleets = Fleets(VirtualClock())

    async def story() -> bool:
        await fleets.make()
        lease = await fleets.store.leases.acquire(MINE, "another beat", MINUTE)
        assert lease is not None
        async with asyncio.TaskGroup() as group:
            fired = group.create_task(fleets.plane.fleets.beat(MINE))
            await fleets.clock.sleep(MAX_WAIT / 2)
            await fleets.store.leases.release(lease)
        return fired.result().led

    assert run_virtually(story())


def test_a_beat_that_is_fired_leaves_the_fleet_to_its_daemon() -> None:
    fleets = Fleets(VirtualClock())

    async def story() -> tuple[bool, timedelta]:
        await fleets.make()
        async with fleets.beating():
            await fleets.clock.sleep(POLICY.every * 1.5)
            began = fleets.clock.elapsed()
            report = await fleets.plane.fleets.beat(MINE)
            waited = fleets.clock.elapsed() - began
        return report.led, waited

    led, waited = run_virtually(story())
    assert (led, waited < MAX_WAIT / 2) == (False, True)


def test_a_beat_that_is_fired_does_not_wait_for_ever() -> None:
    fleets = Fleets(VirtualClock())

    async def story() -> tuple[bool, timedelta]:
        await fleets.make()
        assert await fleets.store.leases.acquire(MINE, "another beat", MINUTE)
        report = await fleets.plane.fleets.beat(MINE)
        return report.led, fleets.clock.elapsed()

    led, waited = run_virtually(story())
    assert (led, MAX_WAIT <= waited < MAX_WAIT * 1.1) == (False, True)


def test_a_trigger_of_a_pool_that_is_no_fleet_is_refused() -> None:
    async def story() -> None:
        fleets = Fleets(VirtualClock())
        await fleets.store.pools.create(pool("jobs", PoolKind.JOBS))
        with pytest.raises(InvalidInput, match="make it one with: drumbeat fleet create jobs"):
            await fleets.plane.fired(Firing(trigger="t", machine=BeatKind.FLEET, pool_id="jobs"))

    run_virtually(story())
