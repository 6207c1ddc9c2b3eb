"""Workers are killed between and within the steps of jobs: no finished step runs again, and every job is done."""

import asyncio
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from drumbeat.core.job import UNFINISHED, Job, JobStatus, NewJob
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.store import Store, open_store
from e2e.processes import PATIENCE, cleared_away, eventually
from servers.redis import RedisServer
from thorough import THOROUGH

HOME = PoolId("orders")
HANDLERS = """
import os, signal
from pathlib import Path

import drumbeat


def note(what, job, n):
    with open("log", "a") as log:
        log.write(f"{what} {job} {n}\\n")


async def one(job, n):
    note("run", job, n)
    return n


async def order(payload, context: drumbeat.JobContext):
    total = 0
    for n in range(1, 5):
        total += await drumbeat.step(one, payload["job"], n)
        note("returned", payload["job"], n)
        if n == payload["kill"]:
            try:
                os.close(os.open(f"killed-{payload['job']}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
    return total
"""
JOBS, KILLS = (40, 12) if THOROUGH else (6, 2)


@pytest.fixture(params=["sqlite", "postgres", "redis"] if THOROUGH else ["sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/drumbeat.db"
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis")
        return server.new_database()
    made: str = request.getfixturevalue("postgres_url")
    return made


def worked(folder: Path, url: str) -> int:
    """Run a worker until it has emptied the queue or was killed. Returns its exit code."""
    options = ["--drain", "--lease", "1s", "--concurrency", "3", "--handler", "handlers:order"]
    command = [sys.executable, "-m", "drumbeat", "pool", "work", HOME, *options]
    environment = {**os.environ, "DRUMBEAT_STORE": url, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
    )
    with cleared_away([process]):
        return process.wait(PATIENCE)


async def with_status(store: Store, *statuses: JobStatus) -> list[Job]:
    return [*await store.jobs.list(HOME, statuses=statuses, limit=JOBS)]


async def nothing_is_stranded(store: Store) -> bool:
    """Whether no job is held any more, by and by: leases of the dead are extended once, then they run out."""
    await store.queue.expire()
    return not await with_status(store, JobStatus.CLAIMED)


@pytest.mark.slow
async def test_no_finished_step_runs_again_however_often_workers_are_killed(url: str, tmp_path: Path) -> None:
    (tmp_path / "handlers.py").write_text(HANDLERS)
    payloads = [{"job": n, "kill": 1 + n % 4 if n < KILLS else 0} for n in range(JOBS)]
    async with open_store(url, create=True) as store:
        await store.pools.create(pool(HOME, PoolKind.JOBS))
        await store.queue.push(HOME, [NewJob(payload=each, max_crashes=100) for each in payloads])

        codes: list[int] = []
        while await with_status(store, *UNFINISHED):
            codes.append(await asyncio.to_thread(worked, tmp_path, url))
            await eventually(partial(nothing_is_stranded, store), "the dead worker's jobs come back")

        jobs = await store.jobs.list(HOME, limit=JOBS)
        assert [(job.status, job.result) for job in jobs] == [(JobStatus.DONE, 10)] * JOBS
        assert {len(await store.job_steps.list(job.job_id)) for job in jobs} == {4}
    assert codes.count(-signal.SIGKILL) == KILLS
    finished: set[str] = set()
    for line in (tmp_path / "log").read_text().splitlines():
        what, _, step = line.partition(" ")
        assert not (what == "run" and step in finished), f"step {step} ran again after it had finished"
        finished |= {step} if what == "returned" else set()
    assert len(finished) == 4 * JOBS
