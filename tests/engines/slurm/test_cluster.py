"""What a real cluster refuses, delays and forgets, and what becomes of workers when its controller is down."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.core.errors import SpawnAmbiguous, SpawnCause, SpawnError, SpawnFailed, Unanswered
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract import alive, programs
from drumbeat.spawn.contract.process_setup import new_mark
from drumbeat.spawn.interface import Instance, InstanceState, Order
from drumbeat.spawn.slurm import SlurmSpawner
from drumbeat.spawn.slurm.commands import SlurmCommands
from engines.slurm.conftest import settings_at
from servers.slurm import SlurmServer
from spawn.programs import PATIENCE_SECONDS

P, W = PoolId("p"), WorkerId("w")
SECRET = "s3cret-of-the-cluster"


@pytest.fixture
def mark() -> str:
    return new_mark()


@pytest.fixture
async def spawner(slurm: SlurmServer, tmp_path: Path) -> AsyncIterator[SlurmSpawner]:
    async with SlurmSpawner(settings_at(slurm, tmp_path), {}, str(tmp_path)) as spawner:
        yield spawner
        await spawner.terminate(P, W)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[SlurmServer]:
    """A cluster of its own, whose controller a test may stop."""
    with SlurmServer(min_job_age=2) as server:
        yield server


def order(mark: str, program: str = programs.WORKER, *arguments: str, **environment: str) -> Order:
    command = ("sh", "-c", program, mark, *arguments)
    return Order(pool_id=P, worker_id=W, slot=0, group_count=1, command=command, environment=environment)


async def until(spawner: SlurmSpawner, state: InstanceState) -> Instance:
    """Wait until the worker's instance has this state."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            found = [one for one in await spawner.list(P) if one.state is state]
            if found:
                return found[0]
            await asyncio.sleep(0.05)


async def begun(spawner: SlurmSpawner, ordered: Order) -> Instance:
    """Start a worker and wait until it is ready."""
    started = await spawner.spawn(ordered)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "ready" not in await spawner.logs(P, W):
            await asyncio.sleep(0.05)
    return started


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"partition": "nowhere"}, "Invalid partition name specified; set partition to one that sinfo shows"),
        ({"partition": "short", "time_limit": timedelta(minutes=10)}, "Requested time limit is invalid .*; set time_limit"),
        ({"gpus": 1, "gpu_type": "a100"}, "gres.*; the partition has no such GPUs"),
        ({"constraint": "quantum"}, "Invalid feature specification; set constraint"),
        ({"nodelist": "node99"}, "Invalid node name specified; set nodelist"),
        ({"cpus": 1000}, "; no node of the partition has what a job asks for"),
        ({"options": ["--bogus"]}, "unrecognized option '--bogus'; correct options"),
    ],
)
async def test_what_the_cluster_refuses_is_told_in_one_line(
    slurm: SlurmServer, tmp_path: Path, changed: dict[str, Any], said: str, mark: str
) -> None:
    async with SlurmSpawner(settings_at(slurm, tmp_path, **changed), {}, "s") as spawner:
        with pytest.raises(SpawnFailed, match=f"worker w of p could not be started: sbatch: .*{said}") as failed:
            await spawner.spawn(order(mark))

        assert failed.value.cause is SpawnCause.BAD_REQUEST
        assert "\n" not in str(failed.value)
        assert await spawner.list(P) == []


async def test_a_worker_on_nodes_that_are_down_is_pending_and_says_why(slurm: SlurmServer, tmp_path: Path, mark: str) -> None:
    async with SlurmSpawner(settings_at(slurm, tmp_path, partition="down"), {}, str(tmp_path)) as spawner:
        await spawner.spawn(order(mark))
        while "reason" not in (instance := await until(spawner, InstanceState.PENDING)).meta:
            await asyncio.sleep(0.05)

        assert "all nodes of the partition are down or drained" in instance.meta["reason"]
        await spawner.drain(P, W)
        await until(spawner, InstanceState.EXITED)
        await spawner.terminate(P, W)


async def test_secrets_are_in_nothing_that_slurm_shows(slurm: SlurmServer, spawner: SlurmSpawner, mark: str) -> None:
    started = await begun(spawner, order(mark, CONTRACT_SECRET=SECRET))

    shown = slurm.run("scontrol", "show", "job", started.ref) + slurm.run("scontrol", "write", "batch_script", started.ref, "-")

    assert "script-" in shown
    assert SECRET not in shown
    for path in slurm.folder.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()


async def test_a_worker_is_asked_to_finish_before_its_time_limit(slurm: SlurmServer, tmp_path: Path, mark: str) -> None:
    changed = {"time_limit": timedelta(seconds=120), "notice": timedelta(seconds=119)}
    async with SlurmSpawner(settings_at(slurm, tmp_path, **changed), {}, str(tmp_path)) as spawner:
        assert spawner.traits.preemption_notice == timedelta(seconds=119)
        await begun(spawner, order(mark, programs.FINISHES))

        ended = await until(spawner, InstanceState.EXITED)

        assert ended.exit_code == 0
        assert (await spawner.logs(P, W)).splitlines()[-1] == "finished"
        await spawner.terminate(P, W)


async def test_text_of_squeue_tells_the_same_as_json(slurm: SlurmServer, spawner: SlurmSpawner, mark: str) -> None:
    await begun(spawner, order(mark))
    commands = SlurmCommands(timedelta(minutes=2), slurm.bin)
    [by_json] = [job for job in await commands.jobs() if job.is_live]

    commands._has_json = False
    [by_text] = [job for job in await commands.jobs() if job.is_live]

    assert by_text == by_json


async def test_an_exit_code_outlives_the_memory_of_the_cluster(other: SlurmServer, tmp_path: Path, mark: str) -> None:
    async with SlurmSpawner(settings_at(other, tmp_path), {}, "s") as spawner:
        await spawner.spawn(order(mark, programs.EXITS, "3"))
        ended = await until(spawner, InstanceState.EXITED)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while ended.ref in other.run("squeue", "--noheader", "--states=all", "--format=%A").split():
                await asyncio.sleep(0.2)

        [still] = await spawner.list(P)

        assert (still.ref, still.exit_code) == (ended.ref, 3)
        assert await spawner.logs(P, W) == "leaving\n"
        await spawner.terminate(P, W)
        assert await spawner.list(P) == []


async def test_a_controller_that_is_down_is_told_and_the_worker_goes_on(other: SlurmServer, tmp_path: Path, mark: str) -> None:
    async with SlurmSpawner(settings_at(other, tmp_path), {}, "s") as spawner:
        started = await begun(spawner, order(mark))
        other.stop()

        for call in (lambda: spawner.list(P), lambda: spawner.drain(P, W), lambda: spawner.terminate(P, W)):
            with pytest.raises(Unanswered, match=r"check that slurmctld runs: scontrol ping") as failed:
                await call()
            assert failed.value.cause is SpawnCause.TRANSIENT
        with pytest.raises(SpawnAmbiguous, match="w of p was not started again, because it might already be"):
            await spawner.spawn(order(mark))
        with pytest.raises(SpawnFailed, match="scontrol ping"):
            await spawner.spawn(Order(pool_id=P, worker_id=WorkerId("new"), slot=0, group_count=1, is_first=True))

        assert len(programs.processes_named(mark)) == 1
        other.start()
        assert [(one.ref, one.state) for one in await spawner.list(P)] == [(started.ref, InstanceState.RUNNING)]
        await spawner.terminate(P, W)
        assert programs.processes_named(mark) == []


async def test_a_start_that_the_controller_answers_too_late_is_found_later(
    other: SlurmServer, tmp_path: Path, mark: str
) -> None:
    impatient = settings_at(other, tmp_path, timeout=timedelta(seconds=1))
    async with SlurmSpawner(impatient, {}, "s") as hasty, SlurmSpawner(settings_at(other, tmp_path), {}, "s") as spawner:
        other.pause()
        with pytest.raises(SpawnError):
            await hasty.spawn(order(mark))
        other.resume()

        started = await begun(spawner, order(mark))

        assert alive(await spawner.list(P)) == [W]
        assert (await spawner.spawn(order(mark))).ref == started.ref
        assert len(programs.processes_named(mark)) == 1
        await spawner.terminate(P, W)
        assert programs.processes_named(mark) == []
