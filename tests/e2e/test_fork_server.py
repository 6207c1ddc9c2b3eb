"""A fork server as it is: checkers and workers forked from one warm process, by hand or kept by a trigger."""

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from drumbeat.core.worker import WorkerStatus
from drumbeat.spawn.fork_wire import SOCKET
from e2e.processes import cleared_away, eventually
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


async def family_of_next_worker(here: Place) -> list[str]:
    """Push a job that takes a moment; the command lines of its worker's parents."""
    known = {row.worker_id for row in await here.workers()}
    await here.run("pool", "push", POOL, json.dumps({"seconds": 3}))

    async def is_there() -> bool:
        return any(row.pid and row.worker_id not in known and row.is_live for row in await here.workers())

    await eventually(is_there, 60, "a worker has joined")
    (pid,) = (row.pid for row in await here.workers() if row.pid and row.worker_id not in known)
    assert pid is not None
    return [" ".join(parent.cmdline()) for parent in psutil.Process(pid).parents()]


async def test_a_worker_is_forked_from_the_server_and_works_like_any_other(url: str, tmp_path: Path) -> None:
    async with place(url, tmp_path) as here:
        server = here.command("pool", "forkserver")
        with cleared_away([server]):
            await eventually(lambda: serves(here), 60, "the server listens")

            parents = await family_of_next_worker(here)
            await eventually(lambda: here.all_done(1), 60, "the job is done")

            assert "drumbeat pool forkserver" in parents[0]
            assert {row.status for row in await here.workers()} == {WorkerStatus.TERMINATED}
            assert "leaving: the work is done" in (tmp_path / "state" / "logs" / POOL / f"{POOL}-worker-0.log").read_text()
            assert (tmp_path / "state" / "triggers" / "local_subprocess.log").read_text().startswith('{"papers": {"led": true')
            server.send_signal(signal.SIGTERM)
            assert server.wait(30) == 0
            assert not await serves(here)


@pytest.mark.slow
async def test_a_trigger_keeps_a_server_for_the_pushes_that_follow(url: str, tmp_path: Path) -> None:
    async with place(url, tmp_path) as here:
        (tmp_path / "triggers.yml").write_text(WARM)
        first = await family_of_next_worker(here)
        await eventually(lambda: serves(here), 60, "a server listens")
        await eventually(lambda: _has_left(here), 60, "the first worker has left and calls for no successor")

        second = await family_of_next_worker(here)
        await eventually(lambda: here.all_done(2), 60, "both jobs are done")

        assert not any("drumbeat.cli.forks" in parent for parent in first)
        assert "drumbeat.cli.forks" in second[0]
        await eventually(lambda: _is_gone(here), 60, "nobody asked, and it has left")


async def _has_left(here: Place) -> bool:
    return await here.all_done(1) and not any(row.pid and psutil.pid_exists(row.pid) for row in await here.workers())


async def _is_gone(here: Place) -> bool:
    return not await serves(here)


async def test_without_a_server_the_worker_of_a_push_is_forked_by_its_checker(url: str, tmp_path: Path) -> None:
    async with place(url, tmp_path) as here:
        await here.run("pool", "push", POOL, json.dumps({"seconds": 8}))

        async def has_worker() -> bool:
            return any(row.pid for row in await here.workers())

        await eventually(has_worker, 60, "a worker has joined")
        (pid,) = (row.pid for row in await here.workers())
        assert pid is not None

        assert "drumbeat.cli.fire" in " ".join(psutil.Process(pid).cmdline())
        assert os.getsid(pid) == pid
        await eventually(lambda: here.all_done(1), 60, "the job is done")
