"""Kill processes (kill -9) between a write of their own and the commit; print whether a push or a completion was half done.

Each process repeats a transaction: either it inserts a row and pushes a job, or it inserts a row and completes the job that it
has claimed. It is killed after both statements, before the commit. Then each row must have its job, and each done job exactly
one row. At the end the jobs of killed processes are taken back and completed by another process.

python benchmarks/own_transaction.py --rounds 100
python benchmarks/own_transaction.py --rounds 100 --stores postgresql --url postgresql://me@localhost/scratch
"""

import argparse
import asyncio
import os
import random
import signal
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import psycopg

import drumbeat
import kit  # noqa: F401
from drumbeat.core.job import JobStatus
from drumbeat.store import open_store
from kit.report import Report, parser, print_table, say

STORES = ("sqlite", "postgresql")
PUSHED, WORKED = "pushed", "worked"  #: the two pools
MOST_BEFORE = 2  #: how many transactions a process commits at most before it is killed
MOMENT = timedelta(milliseconds=1)

Stop = Callable[[int], None]


@contextmanager
def transaction(url: str) -> Iterator[Any]:
    """Yield a connection whose transaction is committed at the end of the ``with`` block."""
    if url.startswith("postgresql"):
        with psycopg.connect(url) as in_postgres:
            yield in_postgres
        return
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)) as connection, connection:
        yield connection


def insert(connection: Any, table: str, n: int) -> None:
    connection.execute(f"INSERT INTO {table} (n) VALUES ({n})")


async def push(url: str, first: int, stop: Stop) -> None:
    """Insert a row and push a job for it, again and again."""
    async with drumbeat.connect(url, create=False) as db:
        pool = db.pool(PUSHED)
        for n in range(first, first + MOST_BEFORE + 1):
            with transaction(url) as connection:
                insert(connection, PUSHED, n)
                pool.push_on(connection, n, unique_key=str(n))
                stop(n - first)


async def work(url: str, first: int, stop: Stop) -> None:
    """Claim a job, insert a row for it and complete it, again and again."""
    async with drumbeat.connect(url, create=False) as db:
        pool = db.pool(WORKED)
        for turn in range(MOST_BEFORE + 1):
            job = await pool.claim(lease=MOMENT)
            if job is None:
                raise SystemExit("expected a job to claim, got none")
            with transaction(url) as connection:
                insert(connection, WORKED, job.payload)
                pool.complete_on(connection, job, job.payload)
                stop(turn)


def kill_one(process: Callable[[str, int, Stop], Any], url: str, first: int, before: int) -> None:
    """Run a process that commits ``before`` transactions, and kill it in the next one, before its commit."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _run_until_killed(process, url, first, before, writing)
    os.close(writing)
    reached = os.read(reading, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    if not reached:
        raise SystemExit("a process ended before it could be killed; see above")


def _run_until_killed(process: Callable[[str, int, Stop], Any], url: str, first: int, before: int, writing: int) -> None:
    def stop(committed: int) -> None:
        if committed == before:
            os.write(writing, b"!")
            signal.pause()

    try:
        asyncio.run(process(url, first, stop))
    finally:
        os._exit(1)


async def prepare(url: str, jobs: int) -> None:
    async with drumbeat.connect(url) as db:
        await db.pool(PUSHED).create()
        await db.pool(WORKED).create()
        await db.pool(WORKED).push_many(range(jobs))
    with transaction(url) as connection:
        for table in (PUSHED, WORKED):
            connection.execute(f"CREATE TABLE {table} (n integer NOT NULL)")


async def half_done(url: str) -> tuple[int, int]:
    """Return how many rows have no job or jobs no row: one count for pushes, one for completions."""
    async with drumbeat.connect(url, create=False) as db:
        pushed = Counter(job.payload for job in await db.pool(PUSHED).list(limit=100_000))
        done = Counter(job.payload for job in await db.pool(WORKED).list(statuses=[JobStatus.DONE], limit=100_000))
    return _differences(url, PUSHED, pushed), _differences(url, WORKED, done)


def _differences(url: str, table: str, expected: "Counter[int]") -> int:
    with transaction(url) as connection:
        found = Counter(n for (n,) in connection.execute(f"SELECT n FROM {table}").fetchall())
    return ((found - expected) + (expected - found)).total()


async def finish(url: str, jobs: int) -> dict[str, int]:
    """Take back the jobs of killed processes, and complete all that are left."""
    async with open_store(url) as store, drumbeat.connect(url, create=False) as db:
        pool = db.pool(WORKED)
        while (await pool.status()).counts.claimed:
            await store.queue.expire()
        while (job := await pool.claim()) is not None:
            with transaction(url) as connection:
                insert(connection, WORKED, job.payload)
                pool.complete_on(connection, job, job.payload)
        counts = (await pool.status()).counts
        listed = len(await pool.list(statuses=[JobStatus.DONE], limit=100_000))
    return {"jobs": jobs, "done": counts.done, "listed as done": listed, "poisoned": counts.poisoned}


def rounds(url: str, number: int, chance: random.Random) -> dict[str, int]:
    """Kill ``number`` processes that push jobs, and ``number`` that complete jobs; returns the faults found."""
    jobs = number * (MOST_BEFORE + 1)
    asyncio.run(prepare(url, jobs))
    half = [0, 0]
    for turn in range(number):
        for process in (push, work):
            kill_one(process, url, turn * 10, chance.randint(0, MOST_BEFORE))
        half = [before + now for before, now in zip(half, asyncio.run(half_done(url)), strict=True)]
    ended = asyncio.run(finish(url, jobs))
    left = sum(asyncio.run(half_done(url)))
    return {"kills": 2 * number, "half pushed": half[0], "half completed": half[1], **ended, "half done at the end": left}


@contextmanager
def place(store: str, url: str | None) -> Iterator[str]:
    """Yield the URL of the store: ``url`` if given, else that of a temporary store."""
    if store == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/jobs.db"
    elif url is not None:
        yield url
    else:
        from servers.postgres import PostgresServer

        with PostgresServer() as server:
            yield server.new_database()


def options() -> argparse.Namespace:
    given = parser(__doc__)
    given.add_argument("--stores", nargs="*", choices=STORES, default=list(STORES))
    given.add_argument("--url", help="use this PostgreSQL database instead of a temporary one; it must be empty")
    given.add_argument("--rounds", type=int, help="how many processes of each kind are killed; default 100, with --quick 5")
    given.add_argument("--seed", type=int, default=1)
    return given.parse_args()


def main() -> None:
    given = options()
    report = Report("own_transaction")
    for store in given.stores:
        with place(store, given.url) as url:
            number = given.rounds or (5 if given.quick else 100)
            report.figures[store] = rounds(url, number, random.Random(given.seed))
            say(f"{store}: done")
    print_table(["", *report.figures], _rows(report))
    report.print()
    if not all(_is_clean(each) for each in report.figures.values()):
        raise SystemExit("pushes or completions were half done; see the table above")


def _rows(report: Report) -> list[list[object]]:
    names = next(iter(report.figures.values()))
    return [[name, *(each[name] for each in report.figures.values())] for name in names]


def _is_clean(result: dict[str, int]) -> bool:
    half = result["half pushed"] + result["half completed"] + result["half done at the end"]
    return not half and not result["poisoned"] and result["jobs"] == result["done"] == result["listed as done"]


if __name__ == "__main__":
    main()
