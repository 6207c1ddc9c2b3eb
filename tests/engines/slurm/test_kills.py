"""Controllers and commands that are killed during a start, and drains at any moment: at most one worker, which is found."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from drumbeat.core.errors import SpawnError
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract import alive, programs
from drumbeat.spawn.contract.process_setup import new_mark
from drumbeat.spawn.interface import InstanceState, Order
from drumbeat.spawn.slurm import SlurmSpawner
from engines.slurm.conftest import settings_at
from servers.slurm import SlurmServer
from spawn.programs import PATIENCE_SECONDS
from thorough import THOROUGH

P, W = PoolId("p"), WorkerId("w")
ROUNDS = 50 if THOROUGH else 6
CHANCE = random.SystemRandom()
#: spawns a worker once, as a controller does; its arguments: the commands, the folder, the mark
CONTROLLER = """
import asyncio, sys
from datetime import timedelta
from pathlib import Path
from drumbeat.spawn.contract.programs import WORKER
from drumbeat.spawn.interface import Order
from drumbeat.spawn.slurm import SlurmSettings, SlurmSpawner

async def main(programs, folder, mark):
    settings = SlurmSettings(programs=Path(programs), folder=Path(folder) / "shared", timeout=timedelta(minutes=2))
    async with SlurmSpawner(settings, {}, folder) as spawner:
        print("spawning", flush=True)
        await spawner.spawn(Order(pool_id="p", worker_id="w", slot=0, group_count=1, command=("sh", "-c", WORKER, mark)))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def mark() -> str:
    return new_mark()


@pytest.fixture
async def spawner(slurm: SlurmServer, tmp_path: Path) -> AsyncIterator[SlurmSpawner]:
    async with SlurmSpawner(settings_at(slurm, tmp_path), {}, str(tmp_path)) as spawner:
        yield spawner
        await spawner.terminate(P, W)


def order(mark: str) -> Order:
    return Order(pool_id=P, worker_id=W, slot=0, group_count=1, command=("sh", "-c", programs.WORKER, mark))


async def is_one_and_found(spawner: SlurmSpawner, slurm: SlurmServer, mark: str) -> None:
    """Spawn again, as the next beat does: afterwards there is one job and one process, and the job is listed."""
    instance = await repeated(spawner, mark)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "ready" not in await spawner.logs(P, W):
            await asyncio.sleep(0.02)
    assert [one.ref for one in await spawner.list(P)] == [instance]
    assert len(programs.processes_named(mark)) == 1
    assert slurm.run("squeue", "--noheader", "--states=RUNNING,PENDING", "--format=%A").split() == [instance]
    await spawner.terminate(P, W)
    assert programs.processes_named(mark) == []


async def repeated(spawner: SlurmSpawner, mark: str) -> str:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with suppress(SpawnError):
                return (await spawner.spawn(order(mark))).ref
            await asyncio.sleep(0.05)


async def test_a_controller_that_is_killed_in_the_middle_of_a_start_leaves_at_most_one_worker_that_is_found(
    spawner: SlurmSpawner, slurm: SlurmServer, tmp_path: Path, mark: str
) -> None:
    for _ in range(ROUNDS):
        controller = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CONTROLLER, str(slurm.bin), str(tmp_path), mark), stdout=asyncio.subprocess.PIPE
        )
        assert controller.stdout is not None
        await controller.stdout.readline()
        await asyncio.sleep(CHANCE.uniform(0, 0.3))
        with suppress(ProcessLookupError):
            controller.kill()
        await controller.wait()

        await is_one_and_found(spawner, slurm, mark)


async def test_an_sbatch_that_is_killed_at_any_moment_leaves_at_most_one_worker_that_is_found(
    spawner: SlurmSpawner, slurm: SlurmServer, mark: str
) -> None:
    for _ in range(ROUNDS):
        async with asyncio.TaskGroup() as group:
            start = group.create_task(attempt(spawner, mark))
            while not start.done():
                await asyncio.sleep(CHANCE.uniform(0, 0.01))
                for child in psutil.Process().children():
                    with suppress(psutil.Error):
                        if "--parsable" in child.cmdline():
                            os.kill(child.pid, signal.SIGKILL)

        await is_one_and_found(spawner, slurm, mark)


async def attempt(spawner: SlurmSpawner, mark: str) -> None:
    with suppress(SpawnError):
        await spawner.spawn(order(mark))


async def test_a_drain_at_any_moment_of_a_start_is_never_lost(spawner: SlurmSpawner, mark: str) -> None:
    for _ in range(ROUNDS):
        await spawner.spawn(order(mark))
        await asyncio.sleep(CHANCE.uniform(0, 1.0))

        await spawner.drain(P, W)

        async with asyncio.timeout(PATIENCE_SECONDS):
            while alive(found := await spawner.list(P)):
                await asyncio.sleep(0.02)
        assert [one.state for one in found] == [InstanceState.EXITED]
        assert found[0].exit_code in {0, 128 + signal.SIGTERM, -signal.SIGUSR1, None}
        assert programs.processes_named(mark) == []
        await spawner.terminate(P, W)
