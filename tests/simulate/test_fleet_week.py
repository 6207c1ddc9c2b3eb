"""Days of a fleet with faults, a week in ``make soak``; every decision is made again from its row alone, and is the same."""

import asyncio
import logging
from datetime import timedelta
from random import Random

import pytest

from bystanders import add_bystanders, bystanders
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.job import NewJob
from drumbeat.fleet.replay import Replay
from drumbeat.settings import Settings
from simulate.fleet_purse import Purse
from simulate.fleet_weather import Weather
from simulate.fleet_world import POOL, World, seconds
from simulate.virtual_time import run_virtually
from thorough import THOROUGH

DAYS = 7 if THOROUGH else 3
RECORDED = timedelta(days=DAYS)
WEATHER = Weather(dies=0.0005, fails=0.001, provider=0.02, kills=0.002, freezes=0.002)


async def _recorded(seed: int) -> tuple[Replay, Replay]:
    async with asyncio.TaskGroup() as group:
        world = World(seed, group, every=timedelta(minutes=15), may_spend=Purse(), stops=False)
        world.weather = world.crew.weather = WEATHER
        await world.open()
        await add_bystanders(world.store)
        before = await bystanders(world.store)
        tasks = [group.create_task(each) for each in (world.control(0), world.trouble())]
        chance = Random(seed)
        while world.clock.elapsed() < RECORDED:
            jobs = [NewJob(payload={"seconds": chance.uniform(60, 900)}) for _ in range(chance.randint(1, 12))]
            await world.store.queue.push(POOL, jobs)
            await world.clock.sleep(seconds(chance.uniform(3600, 8 * 3600)))
        desk = ControlPlane(Settings(), world.store, world.clock).fleet(POOL)
        same, other = await desk.replay(RECORDED * 2, {}), await desk.replay(RECORDED * 2, {"max_workers": 0})
        assert await bystanders(world.store) == before
        for task in (*tasks, *world.crew.lives.values()):
            task.cancel()
    return same, other


def test_every_decision_of_recorded_days_is_made_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    same, other = run_virtually(_recorded(5))

    assert same.beats > 70 * DAYS
    assert same.spawns_before > DAYS
    assert same.drains_before >= DAYS // 2
    assert (same.share, same.differences) == (1.0, ())
    assert other.spawns_after < other.spawns_before
    assert other.differences
