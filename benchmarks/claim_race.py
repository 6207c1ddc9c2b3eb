"""A race for jobs: many processes claim and finish everything in a pool; prints whether any was given twice, or lost.

python benchmarks/claim_race.py --backend sqlite --processes 16 --jobs 50000
python benchmarks/claim_race.py --backend postgres --url postgresql://me@localhost/scratch
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from drumbeat.core.job import JobStatus, NewJob, Outcome, Verdict
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import WorkerId
from drumbeat.store import open_store
from drumbeat.store.interface import Claiming

POOL = PoolId("race")
PUSHED_AT_ONCE = 1000


async def racer(url: str, name: str, limit: int) -> list[str]:
    """Claim and finish until there is nothing left; the ids of what was got."""
    got: list[str] = []
    claiming = Claiming(pool_id=POOL, worker_id=WorkerId(name), lease=timedelta(minutes=10), limit=limit)
    async with open_store(url) as store:
        jobs = await store.queue.claim(claiming)
        while jobs:
            got += [job.job_id for job in jobs]
            verdicts = [Verdict(token=job.token, outcome=Outcome.DONE, result=name) for job in jobs]
            settled = await store.queue.settle(claiming.worker_id, verdicts, claiming)
            if settled.stale:
                raise SystemExit(f"{name}: {len(settled.stale)} of its own claims were refused")
            jobs = settled.claimed
    return got


async def prepare(url: str, jobs: int) -> list[str]:
    """A pool with so many jobs; their ids."""
    ids: list[str] = []
    async with open_store(url, create=True) as store:
        await store.pools.create(pool(POOL, PoolKind.JOBS))
        for first in range(0, jobs, PUSHED_AT_ONCE):
            count = min(PUSHED_AT_ONCE, jobs - first)
            ids += await store.queue.push(POOL, [NewJob(payload=first + n) for n in range(count)])
    return ids


async def finished(url: str, jobs: int) -> int:
    async with open_store(url) as store:
        counts = await store.jobs.counts(POOL, most=jobs + 1)
        running = await store.jobs.list(POOL, statuses=[JobStatus.PENDING, JobStatus.CLAIMED], limit=1)
        return -1 if running else counts.done


def race(url: str, processes: int, jobs: int, limit: int) -> dict[str, Any]:
    """Run it, and say what came of it."""
    ids = asyncio.run(prepare(url, jobs))
    began = time.monotonic()
    command = [sys.executable, __file__, "--racer", url, "--limit", str(limit)]
    racers = [subprocess.Popen([*command, "--name", f"racer-{n}"], stdout=subprocess.PIPE) for n in range(processes)]
    outputs = [each.communicate()[0] for each in racers]
    took = time.monotonic() - began
    if failed := [each.returncode for each in racers if each.returncode]:
        raise SystemExit(f"{len(failed)} of {processes} racers failed: see above")
    got = Counter(job_id for output in outputs for job_id in json.loads(output))
    return {
        "jobs": jobs,
        "processes": processes,
        "seconds": round(took, 2),
        "twice": sum(times > 1 for times in got.values()),
        "lost": len(set(ids) - set(got)),
        "strange": len(set(got) - set(ids)),
        "done": asyncio.run(finished(url, jobs)),
        "least": min(len(json.loads(output)) for output in outputs),
    }


@contextmanager
def place(backend: str, url: str | None) -> Iterator[str]:
    """Somewhere to race; made for the purpose unless it is named."""
    if url is not None:
        yield url
    elif backend == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/race.db?busy_timeout=120"
    else:
        sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
        from servers.postgres import PostgresServer

        with PostgresServer() as server:
            yield f"{server.new_database()}?connections=2"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=["sqlite", "postgres", "redis"], default="sqlite")
    parser.add_argument("--url", help="a store without a pool named race; needed for redis")
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--limit", type=int, default=10, help="how many a claim asks for")
    parser.add_argument("--racer", help=argparse.SUPPRESS)
    parser.add_argument("--name", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.racer:
        print(json.dumps(asyncio.run(racer(given.racer, given.name, given.limit))))
        return
    with place(given.backend, given.url) as url:
        result = race(url, given.processes, given.jobs, given.limit)
    print(json.dumps(result))
    if result["twice"] or result["lost"] or result["strange"] or result["done"] != given.jobs:
        raise SystemExit("the race was not clean")


if __name__ == "__main__":
    main()
