"""Whatever goes wrong, in whatever order: one process a worker once things have settled, and nothing that is forgotten."""

import asyncio
import contextlib
import random
from datetime import timedelta
from pathlib import Path

import pytest

from drumbeat.core.errors import SpawnError
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract.process_setup import new_mark
from drumbeat.spawn.contract.programs import WORKER, processes_named
from drumbeat.spawn.interface import InstanceState, Order
from drumbeat.spawn.kubernetes import KubernetesSpawner
from spawn.kubernetes.conftest import LeapingClock, P, settings_at
from spawn.kubernetes.faults import Answers, Delays, Expires, Fault, Loses, Omits
from spawn.kubernetes.server import ApiServer
from thorough import some

CALLS = ("create jobs", "create secrets", "get jobs", "list jobs", "list pods", "patch jobs", "delete jobs", "delete pods")
WORKERS = tuple(WorkerId(f"w{n}") for n in range(3))


def some_fault(chance: random.Random) -> Fault:
    call, times = chance.choice(CALLS), chance.randint(1, 4)
    return chance.choice(
        [
            Loses(operation=call, times=times),
            Loses(operation=call, done=False, times=times),
            Loses(operation="create jobs", times=times),
            *(Answers(operation=call, status=status, times=times) for status in (401, 403, 429, 500, 503)),
            *(Answers(operation=call, status=status, done=True, times=times) for status in (500, 502, 504)),
            Answers(operation=call, status=200, body=b"garbage"),
            Delays(operation=call, by=timedelta(milliseconds=20)),
            Omits(operation="list jobs", times=times),
            Omits(operation="list pods", times=times),
            Expires(times=times),
        ]
    )


async def recovered(spawner: KubernetesSpawner, wanted: set[WorkerId], mark: str) -> None:
    """What a controller does each beat: end what no row asks for, and start what is missing."""
    seen = await spawner.list(P)
    for one in seen:
        if one.worker_id not in wanted:
            await spawner.terminate(P, one.worker_id)
    running = {one.worker_id for one in seen if one.state is not InstanceState.EXITED}
    for each in sorted(wanted - running):
        with contextlib.suppress(SpawnError):
            command = ("sh", "-c", WORKER, f"{mark}-{each}")
            await spawner.spawn(Order(pool_id=P, worker_id=each, slot=0, group_count=1, command=command))


async def settled(spawner: KubernetesSpawner, server: ApiServer, clock: LeapingClock, wanted: set[WorkerId], mark: str) -> None:
    """No more faults: beats until every worker runs that should, and no other."""
    server.faults.clear()
    async with asyncio.timeout(120):
        while True:
            clock.leapt += timedelta(seconds=5)
            with contextlib.suppress(SpawnError):
                await recovered(spawner, wanted, mark)
                seen = {one.worker_id for one in await spawner.list(P) if one.state is InstanceState.RUNNING}
                if seen == wanted and len(server.cluster.objects["jobs"]) == len(wanted):
                    return


@pytest.mark.parametrize("seed", range(some(32)))
async def test_after_any_trouble_there_is_one_process_a_worker_and_none_once_all_are_ended(
    seed: int, server: ApiServer, tmp_path: Path
) -> None:
    chance, mark, settings = random.Random(seed), new_mark(), settings_at(tmp_path, page_size=2)
    clock = LeapingClock()
    async with KubernetesSpawner(settings, {}, "s", clock) as one, KubernetesSpawner(settings, {}, "s", clock) as other:
        for _ in range(6):
            server.faults += [some_fault(chance) for _ in range(chance.randint(0, 3))]
            with contextlib.suppress(SpawnError):
                await recovered(chance.choice([one, other]), {each for each in WORKERS if chance.random() < 0.7}, mark)

        await settled(one, server, clock, set(WORKERS), mark)
        assert [len(processes_named(f"{mark}-{each}")) for each in WORKERS] == [1, 1, 1]

        await settled(other, server, clock, set(), mark)
        assert [len(processes_named(f"{mark}-{each}")) for each in WORKERS] == [0, 0, 0]
        while any(server.cluster.objects.values()):
            await asyncio.sleep(0.01)
