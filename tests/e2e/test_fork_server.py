"""A fork server as it is: checkers and workers forked from one warm process, by hand or kept by a trigger."""

import json
import os
import signal
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from drumbeat.core.pool import PRESETS, PoolKind
from drumbeat.core.worker import WorkerStatus
from drumbeat.spawn.fork_wire import SOCKET
from e2e.conftest import postgres_in_soak
from e2e.processes import PATIENCE, cleared_away, eventually
from e2e.test_pool_beats import POOL, Place, place

WARM = """
triggers:
  - name: kept_warm
    type: subprocess
    on: work_added
    keep_warm_seconds: 30
"""


async def serves(here: Place) -> bool:
    return (here.folder / "state" / SOCKET).exists()


@dataclass(frozen=True, slots=True)
class Found:
    """A worker's process: its command line, those of its parents, and whether it leads a session."""

    command: str
    parents: list[str]
    leads_session: bool


async def next_worker(here: Place) -> Found:
    """Push a job that waits until its worker's process was looked at."""
    known = {row.worker_id for row in await here.workers()}
    until = here.folder / f"seen-{len(known)}"
    await here.run("pool", "push", POOL, json.dumps({"until": str(until)}))

    async def is_there() -> bool:
        return any(row.pid and row.worker_id not in known for row in await here.workers())

    await eventually(is_there, "a worker has joined")
    (pid,) = (row.pid for row in await here.workers() if row.pid and row.worker_id not in known)
    assert pid is not None
    process = psutil.Process(pid)
    found = Found(" ".join(process.cmdline()), [" ".join(each.cmdline()) for each in process.parents()], os.getsid(pid) == pid)
    until.touch()
    return found


def patient(url: str, folder: Path) -> AbstractAsyncContextManager[Place]:
    """A place whose workers are not given up on a machine that stands still for seconds."""
    return place(url, folder, "hold", PRESETS[PoolKind.JOBS])


@postgres_in_soak
async def test_a_worker_is_forked_from_the_server_and_works_like_any_other(url: str, tmp_path: Path) -> None:
    async with patient(url, tmp_path) as here:
        server = here.command("pool", "forkserver")
        with cleared_away([server]):
            await eventually(lambda: serves(here), "the server listens")

            worker = await next_worker(here)
            await eventually(lambda: here.all_done(1), "the job is done")

            assert "drumbeat pool forkserver" in worker.parents[0]
            assert {row.status for row in await here.workers()} == {WorkerStatus.TERMINATED}
            assert "worker ends: the work is done" in (tmp_path / "state" / "logs" / POOL / f"{POOL}-worker-0.log").read_text()
            assert (tmp_path / "state" / "triggers" / "local_subprocess.log").read_text().startswith('{"papers": {"led": true')
            server.send_signal(signal.SIGTERM)
            assert server.wait(PATIENCE) == 0
            assert not await serves(here)


@pytest.mark.slow
@postgres_in_soak
async def test_a_trigger_keeps_a_server_for_the_pushes_that_follow(url: str, tmp_path: Path) -> None:
    async with patient(url, tmp_path) as here:
        (tmp_path / "triggers.yml").write_text(WARM)
        first = await next_worker(here)
        await eventually(lambda: serves(here), "a server listens")
        await eventually(lambda: _has_left(here), "the first worker has left and calls for no successor")

        second = await next_worker(here)
        await eventually(lambda: here.all_done(2), "both jobs are done")

        assert not any("drumbeat.cli.fork_server" in parent for parent in first.parents)
        assert "drumbeat.cli.fork_server" in second.parents[0]
        await eventually(lambda: _is_gone(here), "nobody asked, and it has left")


async def _has_left(here: Place) -> bool:
    return await here.all_done(1) and not any(row.pid and psutil.pid_exists(row.pid) for row in await here.workers())


async def _is_gone(here: Place) -> bool:
    return not await serves(here)


@postgres_in_soak
async def test_without_a_server_the_worker_of_a_push_is_forked_by_its_checker(url: str, tmp_path: Path) -> None:
    async with patient(url, tmp_path) as here:
        worker = await next_worker(here)

        assert "drumbeat.cli.fire" in worker.command
        assert worker.leads_session
        await eventually(lambda: here.all_done(1), "the job is done")
