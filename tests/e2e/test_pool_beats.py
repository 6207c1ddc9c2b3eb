"""Checkers and reapers as they are: commands of their own, workers that come and go, kill -9, several at once."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.job import Backoff, Job, JobStatus, NewJob
from drumbeat.core.pool import PRESETS, PoolId, PoolKind, Thresholds, pool
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.pool.due_jobs import is_watched
from drumbeat.settings import Settings
from e2e.conftest import postgres_in_soak
from e2e.processes import PATIENCE, cleared_away, eventually

POOL = PoolId("papers")
CAP = 3
HANDLERS = """
import os, signal, time

def nap(payload):
    time.sleep(payload["seconds"])
    return payload

def flaky(payload):
    tried = f"tried-{payload['n']}"
    if not os.path.exists(tried):
        open(tried, "w").close()
        raise RuntimeError("not yet")
    return payload

def hold(payload):
    while not os.path.exists(payload["until"]):
        time.sleep(0.05)

def die(payload):
    os.kill(os.getpid(), signal.SIGKILL)
"""
TRIGGERS = """
triggers:
  - name: cron_5min
    type: cron
    schedule: "*/5 * * * *"
    machine: parallelization_checker
    input:
      pool_id: papers

  - name: local_subprocess
    type: subprocess
    on: work_added  # event name
    machine: parallelization_checker
"""
IMPATIENT = replace(
    PRESETS[PoolKind.JOBS],
    heartbeat_every=timedelta(seconds=0.5),
    stale_after=timedelta(seconds=2),
    lost_after=timedelta(seconds=4),
    give_up_after=timedelta(seconds=3.5),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A folder with a store, handlers and a pool whose workers do one job each."""

    plane: ControlPlane
    folder: Path
    url: str

    def command(self, *words: str) -> subprocess.Popen[str]:
        variables = {"DRUMBEAT_STORE": self.url, "DRUMBEAT_STATE_DIR": str(self.folder / "state")}
        return subprocess.Popen(
            [sys.executable, "-m", "drumbeat", *words],
            cwd=self.folder,
            env={**os.environ, **variables, "PYTHONPATH": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    async def run(self, *words: str, code: int = 0) -> str:
        process = self.command(*words)
        with cleared_away([process]):
            out, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
        assert process.returncode == code, err[-2000:]
        return str(out)

    async def push(self, count: int, seconds: float = 0.1, **more: Any) -> None:
        jobs = [NewJob(payload={"seconds": seconds, "n": n}, **more) for n in range(count)]
        await self.plane.store.queue.push(POOL, jobs)

    async def jobs(self, *statuses: JobStatus) -> Sequence[Job]:
        return await self.plane.store.jobs.list(POOL, statuses=statuses)

    async def workers(self) -> Sequence[Worker]:
        return await self.plane.store.workers.list(POOL)

    async def all_done(self, count: int) -> bool:
        return len(await self.jobs(JobStatus.DONE)) == count and not [row for row in await self.workers() if row.is_live]


@asynccontextmanager
async def place(url: str, folder: Path, handler: str = "nap", limits: Thresholds = IMPATIENT) -> AsyncIterator[Place]:
    (folder / "work.py").write_text(HANDLERS)
    (folder / "triggers.yml").write_text(TRIGGERS)
    async with open_control_plane(Settings(store=url, state_dir=folder / "state")) as plane:
        policy = {"handlers": {"": f"work:{handler}"}, "mode": "once", "max_workers": CAP}
        await plane.store.pools.create(pool(POOL, PoolKind.JOBS, limits, **policy))
        try:
            yield Place(plane, folder, url)
        finally:
            async with plane.local_spawner(survive=True) as spawner:
                for one in await spawner.list(POOL):
                    await spawner.terminate(POOL, one.worker_id)


def most_at_once(rows: Sequence[Worker]) -> int:
    """How many workers there ever were at a time, by their rows."""
    moments: list[tuple[datetime, int]] = []
    for row in rows:
        assert row.created_at is not None
        moments.append((row.created_at, 1))
        if row.ended_at is not None:
            moments.append((row.ended_at, -1))
    here = most = 0
    for _, change in sorted(moments):
        here += change
        most = max(most, here)
    return most


@postgres_in_soak
async def test_retries_and_delayed_jobs_start_workers_without_cron(url: str, tmp_path: Path) -> None:
    async with place(url, tmp_path, "flaky") as here:
        await here.push(2, backoff=Backoff(first=timedelta(seconds=2)))
        await here.plane.store.queue.push(POOL, [NewJob(payload={"n": 2}, delay=timedelta(seconds=3))])

        await here.run("pool", "check", POOL)
        await eventually(lambda: here.all_done(3), "each was tried again, and nobody is left")
        await eventually(lambda: unwatched(here), "whoever watched the pool leaves when nothing is pending")

        assert [(job.attempts, job.failures) for job in await here.jobs()] == [(2, 1)] * 3


async def unwatched(here: Place) -> bool:
    return not await is_watched(here.plane.store, POOL)


@postgres_in_soak
async def test_ten_jobs_are_done_by_at_most_three_workers_after_one_check(url: str, tmp_path: Path) -> None:
    async with place(url, tmp_path) as here:
        await here.push(10)

        said = await here.run("pool", "check", POOL, "--max-workers", str(CAP))
        await eventually(lambda: here.all_done(10), "ten jobs are done and nobody is left")

        rows = await here.workers()
        assert said.count("did: Spawn") == CAP
        assert most_at_once(rows) == CAP
        assert [job.attempts for job in await here.jobs()] == [1] * 10
        assert {row.status for row in rows} == {WorkerStatus.TERMINATED}
        assert len(rows) == 10


@postgres_in_soak
async def test_two_checkers_and_a_cron_tick_at_once_never_start_more_than_the_cap(url: str, tmp_path: Path) -> None:
    async with place(url, tmp_path) as here:
        await here.push(12, seconds=0.3)
        commands = [
            here.command(*words)
            for _ in range(2)
            for words in (("pool", "check", POOL), ("pool", "check", POOL), ("trigger", "fire", "cron_5min"))
        ]
        with cleared_away(commands):
            for process in commands:
                _, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
                assert process.returncode == 0, err
        await eventually(lambda: here.all_done(12), "twelve jobs are done and nobody is left")

        assert most_at_once(await here.workers()) <= CAP


@postgres_in_soak
async def test_a_push_is_enough_where_a_trigger_waits_for_it(url: str, tmp_path: Path) -> None:
    async with place(url, tmp_path) as here:
        await here.run("pool", "push", POOL, json.dumps({"seconds": 0}))

        await eventually(lambda: here.all_done(1), "the job is done")

        assert (tmp_path / "state" / "triggers" / "local_subprocess.log").read_text().startswith('{"papers": {"led": true')


@postgres_in_soak
async def test_a_killed_workers_job_is_taken_back_by_the_reaper_and_done_by_another(url: str, tmp_path: Path) -> None:
    async with place(url, tmp_path) as here:
        await here.push(1, seconds=30)
        await here.run("pool", "check", POOL)
        await eventually(lambda: _is_claimed(here), "the job is claimed")
        (row,) = await here.workers()
        assert row.pid is not None
        os.kill(row.pid, signal.SIGKILL)

        async def is_reaped() -> bool:
            await here.run("pool", "reap")
            return (await here.workers())[0].status is WorkerStatus.ERROR

        await eventually(is_reaped, "its process is seen to be over, long before it is silent for too long")

        (job,) = await here.jobs()
        assert (job.status, job.crashes, job.attempts) == (JobStatus.PENDING, 1, 1)
        assert len(await here.workers()) == 1

        async def is_claimed_again() -> bool:
            await here.run("pool", "check", POOL)  # again and again: on a starved machine the next worker may give up too
            return await _is_claimed(here)

        await eventually(is_claimed_again, "another has it")


async def _is_claimed(here: Place) -> bool:
    return bool(await here.jobs(JobStatus.CLAIMED))


@pytest.mark.slow
@postgres_in_soak
async def test_a_job_that_kills_its_workers_is_poisoned_at_its_limit(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    async with place(url, tmp_path, handler="die") as here:
        await here.push(1, max_crashes=2)

        async def is_poisoned() -> bool:
            await here.plane.checker().check(POOL)
            return bool(await here.jobs(JobStatus.POISONED))

        await eventually(is_poisoned, "the job is poisoned")

        (job,) = await here.jobs()
        assert (job.crashes, job.attempts, job.failures) == (2, 2, 0)
        assert len(await here.workers()) == 2
        assert "ready 0" in await here.run("pool", "check", POOL)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("pool", "check", "nobody"), "nobody"),
        (("pool", "reap", "nobody"), "nobody"),
        (("pool", "reap", "--lost-after", "soon"), "expected a duration"),
        (("trigger", "fire", "nothing"), "no trigger 'nothing'"),
        (("trigger", "check", "--file", "missing.yml"), "missing.yml"),
    ],
)
async def test_what_cannot_be_done_is_told_in_one_line(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/d.db"
    async with open_control_plane(Settings(store=url), create=True):
        pass
    async with place(url, tmp_path) as here:
        process = here.command(*words)
        with cleared_away([process]):
            _, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE)

    assert process.returncode == 1
    assert says in err
    assert len(err.splitlines()) == 1
