"""Whatever goes wrong, in whatever order: one process a worker once things have settled, and nothing that is forgotten."""

import asyncio
import contextlib
import random
from datetime import timedelta

import pytest

from drumbeat.core.errors import SpawnError
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract.process_setup import new_mark
from drumbeat.spawn.contract.programs import WORKER, processes_named
from drumbeat.spawn.interface import InstanceState, Order
from drumbeat.spawn.spcs import SpcsSpawner
from spawn.spcs.account import SpcsAccount
from spawn.spcs.conftest import LeapingClock, P, spawner_at
from spawn.spcs.faults import Answers, Delays, Fault, Garbles, Loses, Omits, Says
from thorough import some

OPERATIONS = (
    "EXECUTE JOB SERVICE",
    "SHOW JOB SERVICES",
    "DESCRIBE SERVICE",
    "SHOW SERVICE CONTAINERS",
    "DROP SERVICE",
    "sign in",
)
WORKERS = tuple(WorkerId(f"w{n}") for n in range(3))


def some_fault(chance: random.Random) -> Fault:
    operation, times = chance.choice(OPERATIONS), chance.randint(1, 4)
    return chance.choice(
        [
            Loses(operation=operation, times=times),
            Loses(operation=operation, done=False, times=times),
            Loses(operation="EXECUTE JOB SERVICE", times=times),
            *(Answers(operation=operation, errno=errno, times=times) for errno in (3001, 390114, 395081)),
            Answers(operation=operation, errno=300002, sqlstate="XX000", done=True, times=times),
            Answers(operation=operation, errno=300002, sqlstate="XX000", times=times),
            Delays(operation=operation, by=timedelta(milliseconds=20)),
            Omits(operation="SHOW JOB SERVICES", times=times),
            Garbles(operation="SHOW SERVICE CONTAINERS", times=times),
            Says(operation="SHOW JOB SERVICES", status="PENDING", times=times),
        ]
    )


async def recovered(spawner: SpcsSpawner, wanted: set[WorkerId], mark: str) -> None:
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


async def settled(spawner: SpcsSpawner, account: SpcsAccount, clock: LeapingClock, wanted: set[WorkerId], mark: str) -> None:
    """No more faults: beats until every worker runs that should, none of them leaves, and there is no other."""
    account.faults.clear()
    async with asyncio.timeout(120):
        while True:
            clock.leapt += timedelta(seconds=5)
            with contextlib.suppress(SpawnError):
                await recovered(spawner, wanted, mark)
                seen = {one.worker_id for one in await spawner.list(P) if one.meta.get("status") == "RUNNING"}
                is_unpacked = all(processes_named(f"{mark}-{each}") for each in wanted)
                if seen == wanted and len(account.services) == len(wanted) and is_unpacked:
                    return


@pytest.mark.parametrize("seed", range(some(24)))
async def test_after_any_trouble_there_is_one_process_a_worker_and_none_once_all_are_ended(
    seed: int, account: SpcsAccount
) -> None:
    chance, mark, clock = random.Random(seed), new_mark(), LeapingClock()
    async with spawner_at(account, clock) as one, spawner_at(account, clock) as other:
        for _ in range(6):
            account.faults += [some_fault(chance) for _ in range(chance.randint(0, 3))]
            with contextlib.suppress(SpawnError):
                await recovered(chance.choice([one, other]), {each for each in WORKERS if chance.random() < 0.7}, mark)

        await settled(one, account, clock, set(WORKERS), mark)
        assert [len(processes_named(f"{mark}-{each}")) for each in WORKERS] == [1, 1, 1]

        await settled(other, account, clock, set(), mark)
        assert [len(processes_named(f"{mark}-{each}")) for each in WORKERS] == [0, 0, 0]
        assert account.services == {}
