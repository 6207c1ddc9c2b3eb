"""Let many processes claim and finish all jobs of a pool at once; print whether a job was claimed twice or lost.

On SQLite, PostgreSQL and Redis the workers are processes; on the memory store, which cannot be shared, they are tasks.

python benchmarks/claim_race.py --stores sqlite redis --processes 16 --jobs 50000
python benchmarks/claim_race.py --stores postgresql --url postgresql://me@localhost/scratch
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
from typing import Any

import kit  # noqa: F401
from drumbeat.core.job import AttemptOutcome, JobOutcome, JobStatus, NewJob
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.store import Store, open_store
from drumbeat.store.interface import ClaimRequest
from kit.report import Report, parser, print_table, say

STORES = ("memory", "sqlite", "postgresql", "redis")
ASKED_FOR = ("snowflake",)  #: slow stores, which are measured only if named with --stores
POOL = PoolId("race")
PUSHED_AT_ONCE = 1000


async def racer(store: Store, name: str, limit: int) -> list[str]:
    """Claim and finish jobs until none is left; returns their ids."""
    got: list[str] = []
    me = Holder(pool_id=POOL, worker_id=WorkerId(name))
    claiming = ClaimRequest(pool_id=POOL, holder=me, lease=timedelta(minutes=10), limit=limit)
    jobs = await store.queue.claim(claiming)
    while jobs:
        got += [job.job_id for job in jobs]
        verdicts = [JobOutcome(token=job.token, outcome=AttemptOutcome.DONE, result=name) for job in jobs]
        settled = await store.queue.settle(me, verdicts, claiming)
        if settled.stale:
            raise SystemExit(f"{name}: {len(settled.stale)} results were refused although it held the jobs")
        jobs = settled.claimed
        await asyncio.sleep(0)
    return got


async def racing(url: str, name: str, limit: int) -> list[str]:
    async with open_store(url) as store:
        return await racer(store, name, limit)


async def prepare(store: Store, jobs: int) -> list[str]:
    """Create the pool and push the jobs; returns their ids."""
    ids: list[str] = []
    await store.pools.create(pool(POOL, PoolKind.JOBS))
    for first in range(0, jobs, PUSHED_AT_ONCE):
        count = min(PUSHED_AT_ONCE, jobs - first)
        ids += await store.queue.push(POOL, [NewJob(payload=first + n) for n in range(count)])
    return ids


async def finished(store: Store, jobs: int) -> int:
    counts = await store.jobs.counts(POOL, most=jobs + 1)
    running = await store.jobs.list(POOL, statuses=[JobStatus.PENDING, JobStatus.CLAIMED], limit=1)
    return -1 if running else counts.done


async def race(url: str, processes: int, jobs: int, limit: int) -> dict[str, Any]:
    """Let the processes claim and finish all jobs of one store; returns the figures and errors."""
    async with open_store(url, create=True) as store:
        ids = await prepare(store, jobs)
        began = time.monotonic()
        if url.startswith("memory"):
            outcome = await asyncio.gather(*(racer(store, f"racer-{n}", limit) for n in range(processes)))
        else:
            outcome = await asyncio.to_thread(run_processes, url, processes, limit)
        took = time.monotonic() - began
        got = Counter(job_id for each in outcome for job_id in each)
        return {
            "jobs": jobs,
            "racers": processes,
            "seconds": round(took, 2),
            "twice": sum(times > 1 for times in got.values()),
            "lost": len(set(ids) - set(got)),
            "strange": len(set(got) - set(ids)),
            "done": await finished(store, jobs),
            "least": min(len(each) for each in outcome),
        }


def run_processes(url: str, processes: int, limit: int) -> list[list[str]]:
    command = [sys.executable, __file__, "--racer", url, "--limit", str(limit)]
    racers = [subprocess.Popen([*command, "--name", f"racer-{n}"], stdout=subprocess.PIPE) for n in range(processes)]
    outputs = [each.communicate()[0] for each in racers]
    if failed := [each.returncode for each in racers if each.returncode]:
        raise SystemExit(f"{len(failed)} of {processes} processes failed; see above")
    return [json.loads(output) for output in outputs]


@contextmanager
def place(store: str, url: str | None) -> Iterator[str]:
    """Yield the URL of the store: ``url`` if given, else that of a temporary store."""
    if url is not None:
        yield url
    elif store == "memory":
        yield "memory:"
    elif store == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/race.db?busy_timeout=120"
    elif store == "redis":
        from servers.redis import RedisServer

        with RedisServer() as redis:
            yield redis.new_database()
    elif store == "snowflake":
        from servers.snowflake import SnowflakeServer

        with SnowflakeServer() as emulator:
            yield emulator.new_database()
    else:
        from servers.postgres import PostgresServer

        with PostgresServer() as server:
            yield f"{server.new_database()}?connections=2"


def options() -> argparse.Namespace:
    given = parser(__doc__)
    given.add_argument("--stores", nargs="*", choices=(*STORES, *ASKED_FOR), default=list(STORES))
    given.add_argument("--url", help="use this store instead of a temporary one; it must not have a pool named race")
    given.add_argument("--processes", type=int, default=16)
    given.add_argument("--jobs", type=int, help="default 50,000; with --quick 3,000")
    given.add_argument("--limit", type=int, default=10, help="jobs per claim")
    given.add_argument("--racer", help=argparse.SUPPRESS)
    given.add_argument("--name", help=argparse.SUPPRESS)
    return given.parse_args()


def main() -> None:
    given = options()
    if given.racer:
        print(json.dumps(asyncio.run(racing(given.racer, given.name, given.limit))))
        return
    jobs = given.jobs or (3_000 if given.quick else 50_000)
    report = Report("claim_race")
    for store in given.stores:
        with place(store, given.url) as url:
            report.figures[store] = asyncio.run(race(url, given.processes, jobs, given.limit))
            say(f"{store}: done")
    print_table(["", *report.figures], _rows(report))
    report.print()
    if not all(_is_clean(each) for each in report.figures.values()):
        raise SystemExit("jobs were claimed twice, lost or left unfinished; see the table above")


def _rows(report: Report) -> list[list[object]]:
    names = next(iter(report.figures.values()))
    return [[name, *(each[name] for each in report.figures.values())] for name in names]


def _is_clean(result: dict[str, Any]) -> bool:
    return not (result["twice"] or result["lost"] or result["strange"]) and result["done"] == result["jobs"]


if __name__ == "__main__":
    main()
