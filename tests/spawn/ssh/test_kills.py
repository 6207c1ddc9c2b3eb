"""Agents, supervisors and connections that are killed: at most one worker, and it is found."""

import asyncio
import os
import random
import shlex
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.core.errors import SpawnError
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.contract import alive
from drumbeat.spawn.contract.process_setup import new_mark
from drumbeat.spawn.contract.programs import WORKER, processes_named
from drumbeat.spawn.interface import InstanceState, Order
from drumbeat.spawn.ssh import SshSpawner
from drumbeat.spawn.ssh.agent import BOOT
from drumbeat.spawn.ssh.agent_host import is_running, send, start_of
from servers.openssh import OpenSshServer
from spawn.programs import PATIENCE_SECONDS
from spawn.ssh.conftest import settings_at
from thorough import THOROUGH

P, W = PoolId("p"), WorkerId("w")
ROUNDS = 100 if THOROUGH else 8


@pytest.fixture
def mark() -> str:
    return new_mark()


@pytest.fixture
async def spawner(sshd: OpenSshServer, tmp_path: Path) -> AsyncIterator[SshSpawner]:
    async with SshSpawner(settings_at(sshd, tmp_path), {}, str(tmp_path)) as spawner:
        yield spawner
        await spawner.terminate(P, W)


def order(mark: str) -> Order:
    return Order(pool_id=P, worker_id=W, slot=0, group_count=1, command=("sh", "-c", WORKER, mark))


def agents(server: OpenSshServer) -> Sequence[psutil.Process]:
    """The agents that run in this server's logins, and their supervisors."""
    found = []
    for login in server.logins():
        with suppress(psutil.NoSuchProcess):
            found += [process for process in login.children(recursive=True) if is_agent(process)]
    return found


def is_agent(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return BOOT in process.cmdline()
    return False


async def test_a_spawn_whose_agent_is_killed_at_any_moment_leaves_at_most_one_worker_that_is_found(
    spawner: SshSpawner, sshd: OpenSshServer, mark: str
) -> None:
    for _ in range(ROUNDS):
        with suppress(SpawnError):
            await spawner.list(P)
        with suppress(SpawnError):
            async with asyncio.TaskGroup() as group:
                start = group.create_task(attempt(spawner, mark))
                await asyncio.sleep(random.SystemRandom().uniform(0, 0.15))
                victims = agents(sshd)
                for process in random.SystemRandom().choices(victims, k=len(victims)):
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                await start
        instance = await repeated(spawner, mark)

        assert [one.ref for one in await spawner.list(P)] == [instance]
        assert len(processes_named(mark)) == 1
        await spawner.terminate(P, W)
        assert processes_named(mark) == []


async def attempt(spawner: SshSpawner, mark: str) -> None:
    with suppress(SpawnError):
        await spawner.spawn(order(mark))


async def repeated(spawner: SshSpawner, mark: str) -> str:
    """Spawn until it is answered, as the next beat would."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            with suppress(SpawnError):
                return (await spawner.spawn(order(mark))).ref
            await SystemClock().sleep(timedelta(milliseconds=50))


async def test_a_lost_connection_is_opened_again_and_the_worker_goes_on(
    spawner: SshSpawner, sshd: OpenSshServer, mark: str
) -> None:
    started = await spawner.spawn(order(mark))
    for login in sshd.logins():
        login.kill()

    with suppress(SpawnError):
        await spawner.list(P)

    assert [(one.ref, one.state) for one in await spawner.list(P)] == [(started.ref, InstanceState.RUNNING)]


async def test_a_worker_whose_supervisor_was_killed_goes_on_and_its_end_is_seen(
    spawner: SshSpawner, mark: str, tmp_path: Path
) -> None:
    started = await spawner.spawn(order(mark))
    [worker] = processes_named(mark)
    os.kill(worker.ppid(), signal.SIGKILL)
    assert [(one.ref, one.state) for one in await spawner.list(P)] == [(started.ref, InstanceState.RUNNING)]

    os.kill(worker.pid, signal.SIGKILL)
    while alive(await spawner.list(P)):
        await asyncio.sleep(0.02)

    assert [(one.state, one.exit_code) for one in await spawner.list(P)] == [(InstanceState.EXITED, None)]


async def test_children_that_an_ended_run_has_left_are_ended_before_the_worker_is_started_again(
    spawner: SshSpawner, mark: str
) -> None:
    leaves = ("sh", "-c", f"setsid sh -c {shlex.quote(WORKER)} {mark} & exit 3")
    await spawner.spawn(replace(order(mark), command=leaves))
    while alive(await spawner.list(P)) or not processes_named(mark):
        await asyncio.sleep(0.02)

    await spawner.spawn(replace(order(mark), command=("sh", "-c", WORKER, f"{mark}-again")))

    assert processes_named(mark) == []
    assert alive(await spawner.list(P)) == [W]


async def test_a_later_process_with_the_same_pid_is_not_taken_for_the_worker(
    spawner: SshSpawner, mark: str, tmp_path: Path
) -> None:
    await spawner.spawn(order(mark))
    [record] = tmp_path.glob("*/workers/*/process")
    stranger = os.getpid()
    [worker] = processes_named(mark)
    text = record.read_text()
    record.write_text(
        text.replace(f'"pid": {worker.pid}', f'"pid": {stranger}').replace('"supervisor":', '"supervisor": 0, "x":')
    )

    assert alive(await spawner.list(P)) == []
    await spawner.drain(P, W)
    await spawner.terminate(P, W)

    assert processes_named(mark) == [], "the worker is found by its tag"


async def test_records_from_before_a_reboot_are_ended_workers(spawner: SshSpawner, mark: str, tmp_path: Path) -> None:
    await spawner.spawn(order(mark))
    [record] = tmp_path.glob("*/workers/*/process")
    record.write_text(record.read_text().replace('"boot": "', '"boot": "earlier-'))

    assert [one.state for one in await spawner.list(P)] == [InstanceState.EXITED]


async def test_a_record_of_a_worker_that_ended_long_ago_is_deleted(spawner: SshSpawner, tmp_path: Path) -> None:
    await spawner.spawn(Order(pool_id=P, worker_id=W, slot=0, group_count=1, command=("sh", "-c", "exit 4")))
    while alive(await spawner.list(P)):
        await asyncio.sleep(0.02)
    [ended] = tmp_path.glob("*/workers/*/exit")
    ended.write_text('{"code": 4, "time": 1000.0}')

    assert await spawner.list(P) == []
    assert [*tmp_path.glob("*/workers/*")] == []


def test_a_signal_is_sent_only_to_the_process_that_started_then() -> None:
    pid = os.getpid()

    assert is_running(pid, start_of(pid))
    assert not is_running(pid, "1")
    send(signal.SIGKILL, pid, "1")
