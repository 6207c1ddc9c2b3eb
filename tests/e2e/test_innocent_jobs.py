"""One job of many kills every worker that runs it: it alone is poisoned, whatever runs or waits beside it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from drumbeat.core.job import UNFINISHED, Job, JobStatus, NewJob
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.store import Store, open_store
from e2e.processes import PATIENCE, cleared_away, eventually
from servers.postgres import PostgresServer
from servers.redis import RedisServer
from thorough import THOROUGH

POOLS = [PoolId(name) for name in ("first", "second", "third")]
HANDLERS = """
import os, signal

def work(payload):
    if payload == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return payload
"""
BEFORE, AFTER = (300, 1500) if THOROUGH else (60, 300)
MOST_WORKERS = 60


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/drumbeat.db"
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis")
        return server.new_database()
    made: str = request.getfixturevalue("postgres_url")
    return made


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with open_store(url, create=True) as store:
        for pool_id in POOLS:
            await store.pools.create(pool(pool_id, PoolKind.JOBS))
        yield store


@asynccontextmanager
async def worker(folder: Path, url: str, pool_id: PoolId, concurrency: int) -> AsyncIterator[subprocess.Popen[str]]:
    (folder / "handlers.py").write_text(HANDLERS)
    options = ["--drain", "--lease", "1s", "--concurrency", str(concurrency), "--handler", "handlers:work"]
    command = [sys.executable, "-m", "drumbeat", "pool", "work", pool_id, *options]
    environment = {**os.environ, "DRUMBEAT_STORE": url, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with cleared_away([process]):
        yield process


async def jobs_of(store: Store, pool_id: PoolId) -> list[Job]:
    return [*await store.jobs.list(pool_id, limit=10_000)]


async def unfinished(store: Store, pool_id: PoolId) -> int:
    return sum(job.status in UNFINISHED for job in await jobs_of(store, pool_id))


async def nothing_is_stranded(store: Store, pool_id: PoolId) -> bool:
    """Whether no job is held any more, by and by: leases of the dead are extended once, then they run out."""
    await store.queue.expire()
    return not any(job.status is JobStatus.CLAIMED for job in await jobs_of(store, pool_id))


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 8, 100] if THOROUGH else [8])
async def test_of_many_jobs_only_the_one_that_kills_its_workers_is_poisoned(
    store: Store, url: str, tmp_path: Path, concurrency: int
) -> None:
    payloads = [*range(BEFORE), "kill", *range(AFTER)]
    home, *others = POOLS
    await store.queue.push(home, [NewJob(payload=payload) for payload in payloads])
    for other in others:
        await store.queue.push(other, [NewJob(payload=n) for n in range(20)])

    deaths = 0
    for _ in range(MOST_WORKERS):
        if not await unfinished(store, home):
            break
        async with worker(tmp_path, url, home, concurrency) as process:
            await asyncio.to_thread(process.communicate)
            deaths += process.returncode == -signal.SIGKILL
        await eventually(partial(nothing_is_stranded, store, home), "the dead worker's jobs come back")
    for other in others:
        async with worker(tmp_path, url, other, concurrency) as process:
            await asyncio.to_thread(process.communicate)

    jobs = await jobs_of(store, home)
    assert Counter(job.status for job in jobs) == {JobStatus.DONE: len(payloads) - 1, JobStatus.POISONED: 1}
    [killer] = [job for job in jobs if job.status is JobStatus.POISONED]
    assert (killer.payload, killer.crashes + killer.suspicions, deaths) == ("kill", 3, 3)
    assert [job.crashes for job in jobs if job is not killer] == [0] * (len(payloads) - 1)
    for other in others:
        found = await jobs_of(store, other)
        assert Counter((job.status, job.attempts, job.crashes) for job in found) == {(JobStatus.DONE, 1, 0): 20}


@pytest.mark.slow
async def test_a_store_that_is_away_for_longer_than_the_lease_is_no_crash_of_any_job(
    private_postgres: PostgresServer, tmp_path: Path
) -> None:
    url = private_postgres.url()
    (tmp_path / "handlers.py").write_text(
        "import pathlib, time\n\ndef work(payload):\n    while not pathlib.Path(payload).exists():\n        time.sleep(0.05)\n"
    )
    go = tmp_path / "go"
    async with open_store(url, create=True) as store:
        await store.pools.create(pool(POOLS[0], PoolKind.JOBS))
        await store.queue.push(POOLS[0], [NewJob(payload=str(go), max_crashes=1) for _ in range(3)])

    async def running() -> bool:
        async with open_store(url) as store:
            return sum(job.status is JobStatus.CLAIMED for job in await jobs_of(store, POOLS[0])) == 3

    command = [sys.executable, "-m", "drumbeat", "pool", "work", POOLS[0], "--drain", "--lease", "1s", "--concurrency", "3"]
    environment = {**os.environ, "DRUMBEAT_STORE": url, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    process = subprocess.Popen([*command, "--executor", "threads", "--handler", "handlers:work"], cwd=tmp_path, env=environment)
    try:
        await eventually(running, "three jobs under way")
        private_postgres.stop()
        await asyncio.sleep(4)
        private_postgres.start()
        async with open_store(url) as store:
            await store.queue.expire()
        go.touch()
        assert await asyncio.to_thread(process.wait, PATIENCE) == 0
    finally:
        process.kill()
        process.wait()

    async with open_store(url) as store:
        found = await jobs_of(store, POOLS[0])
    assert [(job.status, job.attempts, job.crashes, job.suspicions) for job in found] == [(JobStatus.DONE, 1, 0, 0)] * 3
