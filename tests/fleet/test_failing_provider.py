"""A provider that always fails is asked for five workers in ten minutes at the most, in whatever way it fails."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import SpawnCause
from drumbeat.core.job import NewJob
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, pool
from drumbeat.fleet.model import FleetPolicy, PolicyName
from drumbeat.settings import Settings
from drumbeat.spawn.fake import AnswerLost, ExitsAtOnce, FakeSpawner, Fault, SpawnFails
from drumbeat.spawn.interface import Spawner
from drumbeat.store.memory import MemoryStore
from simulate.virtual_time import VirtualClock, run_virtually
from spawn.runpod.faults import Answers, Fault as RunPodFault, Loses
from spawn.runpod.machines import Card
from spawn.runpod.rig import STORE, VARIABLES
from spawn.runpod.simulator import NO_STOCK, RunPodSimulator
from spawn.runpod.wire import SimulatedWire

POOL = PoolId("p")
ALWAYS = 10_000
MINUTES = 60  #: of beats, each half a minute
POLICIES = [PolicyName.QUEUE_RATIO, PolicyName.LAG_AWARE]
SITES = [("L4", "SECURE", f"EU-{n}") for n in range(12)]

FAULTS: dict[str, Fault] = {
    **{
        cause.value: SpawnFails(cause=cause, times=ALWAYS)
        for cause in SpawnCause
        if cause not in (SpawnCause.AMBIGUOUS, SpawnCause.BOOT_CRASH)
    },
    "rate limited, and says so": SpawnFails(cause=SpawnCause.RATE_LIMITED, retry_after=timedelta(seconds=5), times=ALWAYS),
    "ambiguous": AnswerLost(started=False, times=ALWAYS),
}
ANSWERS: dict[str, RunPodFault] = {
    **{
        str(status): Answers(operation="createPod", status=status, times=ALWAYS)
        for status in (400, 401, 402, 403, 422, 429, 500, 502, 503, 504)
    },
    "no stock": Answers(operation="createPod", status=400, detail=NO_STOCK, times=ALWAYS),
    "lost": Loses(operation="createPod", done=False, times=ALWAYS),
}


async def beaten(clock: VirtualClock, spawner: Spawner, policy: PolicyName) -> None:
    """An hour of beats, with a queue that wants ten workers."""
    store = MemoryStore(clock)
    wanted = FleetPolicy(policy=policy, min_workers=0, max_workers=10)
    await store.pools.create(pool(POOL, PoolKind.JOBS, PRESETS[PoolKind.FLEET], **wanted.to_json()))
    await store.queue.push(POOL, [NewJob(payload=n) for n in range(40)])
    plane = ControlPlane(Settings(store="memory:", state_dir=Path("/dev/null/state")), store, clock)
    loop = plane.fleets.loop(POOL, spawner, wanted.every)
    for _ in range(MINUTES * 2):
        await loop.beat()
        await asyncio.sleep(wanted.every.total_seconds())


def most_in_ten_minutes(times: list[float]) -> int:
    return max(sum(begin <= at < begin + 600 for at in times) for begin in times)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", FAULTS)
def test_a_provider_that_always_fails_is_asked_five_times_in_ten_minutes(kind: str, policy: PolicyName) -> None:
    async def story() -> list[float]:
        clock = VirtualClock()
        spawner = FakeSpawner(clock, [FAULTS[kind]])
        await beaten(clock, spawner, policy)
        return [call.at.timestamp() for call in spawner.calls if call.verb == "spawn"]

    times = run_virtually(story())

    assert len(times) >= 2
    assert most_in_ten_minutes(times) <= 5


@pytest.mark.parametrize("kind", ANSWERS)
def test_so_is_runpod_however_many_places_it_has(kind: str) -> None:
    async def story() -> list[float]:
        from drumbeat.spawn.runpod import RunPodSettings, RunPodSpawner

        clock = VirtualClock()
        cards, stock = (Card(id="L4", secure=0.4),), dict.fromkeys(SITES, 50)
        simulator = RunPodSimulator(clock, cards=cards, stock=stock, schema=None, faults=[ANSWERS[kind]])
        settings = RunPodSettings(image="i", max_price_per_hour=1.0)
        async with RunPodSpawner(settings, STORE, clock, VARIABLES, SimulatedWire(simulator)) as spawner:
            await beaten(clock, spawner, PolicyName.QUEUE_RATIO)
        return [call.at.timestamp() for call in simulator.asked("createPod")]

    times = run_virtually(story())

    assert len(times) >= 2
    assert most_in_ten_minutes(times) <= 5


def test_workers_that_crash_at_once_stop_being_started() -> None:
    async def story() -> list[float]:
        clock = VirtualClock()
        spawner = FakeSpawner(clock, [ExitsAtOnce(exit_code=1, times=ALWAYS)])
        await beaten(clock, spawner, PolicyName.QUEUE_RATIO)
        return [call.at.timestamp() for call in spawner.calls if call.verb == "spawn"]

    times = run_virtually(story())

    assert len([at for at in times if at > times[0] + 600]) <= 12
