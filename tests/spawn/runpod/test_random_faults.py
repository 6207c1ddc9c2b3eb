"""Whatever goes wrong, in whatever order: one pod a worker once things have settled, and none that is forgotten."""

import contextlib
import random
from datetime import timedelta

import pytest

from drumbeat.core.errors import SpawnAmbiguous, SpawnError
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.interface import InstanceState
from drumbeat.spawn.runpod import RunPodSpawner
from spawn.runpod.faults import Answers, ArrivesLate, Delays, Duplicates, Fault, Invents, KeepsOnDelete, Loses, Omits
from spawn.runpod.machines import Card
from spawn.runpod.rig import POOL, Rig, order, rigged
from spawn.runpod.simulator import NO_STOCK
from thorough import some

CALLS = ("createPod", "listPods", "getPod", "deletePod", "listGpuTypes")
WORKERS = tuple(WorkerId(f"w{n}") for n in range(4))
CARDS = (Card(id="L4", secure=0.4), Card(id="T4", secure=0.2))
BEAT = timedelta(seconds=30)


def some_fault(chance: random.Random) -> Fault:
    call, times = chance.choice(CALLS), chance.randint(1, 4)
    name = f"drumbeat.p.{chance.choice(WORKERS)}"
    return chance.choice(
        [
            Loses(operation=call, times=times),
            Loses(operation=call, done=False, times=times),
            Loses(operation="createPod"),
            *(Answers(operation=call, status=status, times=times) for status in (403, 429, 500, 503)),
            *(Answers(operation="createPod", status=status, done=True) for status in (500, 502, 504)),
            Answers(operation="createPod", status=400, detail=NO_STOCK, times=times),
            Answers(operation=call, status=200, body=b"garbage"),
            Delays(operation=call, by=timedelta(seconds=chance.randint(1, 90))),
            Duplicates(),
            ArrivesLate(by=timedelta(seconds=chance.randint(1, 170))),
            Omits(times=times),
            Omits(names=[name], times=times),
            Invents(names=[name, "drumbeat.p.nobody", "not-ours"]),
            KeepsOnDelete(operation="deletePod", times=times),
        ]
    )


async def recovered(spawner: RunPodSpawner, wanted: set[WorkerId]) -> None:
    """What a controller does each beat: end what no row asks for, and start what is missing."""
    seen = await spawner.list(POOL)
    for one in seen:
        if one.worker_id not in wanted:
            await spawner.terminate(POOL, one.worker_id)
    running = {one.worker_id for one in seen if one.state is not InstanceState.EXITED}
    for worker_id in sorted(wanted - running):
        with contextlib.suppress(SpawnAmbiguous):
            await spawner.spawn(order(worker_id))


async def troubled(rig: Rig, spawner: RunPodSpawner, chance: random.Random) -> None:
    """One beat in which anything may fail."""
    rig.simulator.faults += [some_fault(chance) for _ in range(chance.randint(0, 3))]
    wanted = {worker for worker in WORKERS if chance.random() < 0.7}
    with contextlib.suppress(SpawnError):
        await recovered(spawner, wanted)
    await rig.pass_time(timedelta(seconds=chance.randint(0, 60)))


async def settled(rig: Rig, spawner: RunPodSpawner, wanted: set[WorkerId]) -> None:
    """No more faults: beats until late pods have come and refusals are forgotten."""
    rig.simulator.faults.clear()
    for _ in range(30):
        with contextlib.suppress(SpawnError):
            await recovered(spawner, wanted)
        await rig.pass_time(BEAT)


@pytest.mark.parametrize("seed", range(some(60)))
async def test_after_any_trouble_there_is_one_pod_a_worker_and_none_once_all_are_ended(seed: int) -> None:
    chance = random.Random(seed)
    stock = {("L4", "SECURE", "EU-1"): 50, ("T4", "SECURE", "US-1"): chance.choice([1, 3, 50])}
    async with rigged(cards=CARDS, stock=stock) as rig, rig.another() as other:
        for _ in range(8):
            await troubled(rig, chance.choice([rig.spawner, other]), chance)

        await settled(rig, rig.spawner, set(WORKERS))
        assert rig.simulator.alive_names() == {f"drumbeat.p.{worker}": 1 for worker in WORKERS}

        await settled(rig, other, set())
        assert rig.simulator.burn() == 0
        spent = rig.simulator.spent()
        await rig.pass_time(timedelta(days=1))
        assert rig.simulator.spent() == spent
