"""Measure what a long history costs: compare operations of a pool with millions of finished jobs and thousands of ended workers
with those of an empty pool, and time pushes while a million rows are pruned.

python benchmarks/pool_history.py [--quick] [--stores sqlite postgresql redis] [--jobs 2000000] [--workers 50000]

The operations are check, status, explain, claim, push and the start of a worker. Both pools have a hundred waiting jobs.
Operations alternate between the empty and the full pool; ratios are those of the medians. Then one process pushes a job every
few milliseconds while another prunes half of the finished jobs. The history is written by bulk statements. Goals: every ratio
at most 3, and no push over 100 ms. On a busy machine a push may wait longer for a processor, so its time without that wait is
reported too (longest_on_cpu_ms).
"""

import asyncio
import multiprocessing
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import asyncpg

import kit  # noqa: F401
from drumbeat.core.clock import SystemClock
from drumbeat.core.job import AttemptOutcome, Job, JobOutcome, NewJob
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.retention import Prunable, Pruned
from drumbeat.core.worker import Holder, WorkerId, WorkerStatus
from drumbeat.pool.beats import BeatContext, beat_once, pool_loop
from drumbeat.pool.service import Pool
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store import Store, open_store
from drumbeat.store.interface import ClaimRequest, Heartbeat, JoinRequest, Upkeep
from drumbeat.store.pruning import prune_all
from drumbeat.store.redis.store import RedisStore
from drumbeat.store.sql import postgres
from drumbeat.store.sql.postgres_dialect import dialect
from drumbeat.store.sql.queries import load_queries
from drumbeat.store.sql.sqlite import DIALECT
from kit.pool_past import POOL, Sizes, fill
from kit.report import Report, median, parser, percentile, print_table, say
from servers.postgres import PostgresServer
from servers.redis import RedisServer

ME = Holder(pool_id=POOL, worker_id=WorkerId("me"))
STORES = ("sqlite", "postgresql", "redis")
KEPT = timedelta(days=7)  #: the first half of the history is older
WAITING = 100
BETWEEN = 0.005  #: seconds between two pushes
MOST_RATIO, MOST_WAIT = 3.0, 0.100
PLANNED = (
    "list_jobs",
    "count_queue",
    "count_ahead",
    "any_expired",
    "list_live_workers",
    "list_unreaped_workers",
    "list_ended_workers",
    "list_prunable",
)
_DAY_US = 86_400_000_000


# Operations


class Scene:
    """One pool, and the operations measured in it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.pool = Pool(store, SystemClock(), POOL, "me")
        self._held: Sequence[Job] = ()
        self._pushed: str = ""

    async def begin(self) -> None:
        await self.store.pools.create(pool(POOL, PoolKind.JOBS, max_workers=0))
        await self.store.queue.push(POOL, [NewJob(payload={"n": n}, priority=n % 3) for n in range(WAITING)])

    async def check(self) -> None:
        clock = SystemClock()
        beating = BeatContext(store=self.store, spawner=FakeSpawner(clock), clock=clock, owner=f"me {time.time_ns()}")
        await beat_once(pool_loop(beating, POOL, timedelta(seconds=15), timedelta(seconds=15)), clock)

    async def status(self) -> None:
        await self.pool.status()

    async def push(self) -> None:
        [self._pushed] = await self.store.queue.push(POOL, [NewJob(payload={})])

    async def explain(self) -> None:
        await self.pool.explain(self._pushed)

    async def claim(self) -> None:
        self._held = await self.store.queue.claim(ClaimRequest(pool_id=POOL, holder=ME, lease=timedelta(minutes=1)))

    async def put_back(self) -> None:
        await self.store.queue.settle(ME, [JobOutcome(token=job.token, outcome=AttemptOutcome.DONE) for job in self._held])

    async def start(self) -> None:
        """Start a worker: it joins the pool, reads the instructions for it, and leaves."""
        name = WorkerId(f"late-{time.time_ns()}")
        who = JoinRequest(pool_id=POOL, worker_id=name, slot=0, instance="i", host="h", pid=1)
        await self.store.membership.join(who)
        await self.store.membership.beat(Heartbeat(pool_id=POOL, worker_id=name, instance="i", read_to=0))
        await self.store.membership.move(POOL, name, "i", WorkerStatus.TERMINATED, "done")

    def operations(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {
            "push": self.push,
            "check": self.check,
            "status": self.status,
            "explain": self.explain,
            "claim": self.claim,
            "start": self.start,
        }


async def measured(empty: Scene, full: Scene, rounds: int) -> dict[str, tuple[float, float]]:
    """Return each operation's median time in both pools, without the first round, which connects and prepares statements."""
    took: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in empty.operations()}
    for n in range(rounds + 1):
        for name, found in took.items():
            for scene, times in zip((empty, full)[:: 1 if n % 2 else -1], found[:: 1 if n % 2 else -1], strict=True):
                began = time.perf_counter()
                await scene.operations()[name]()
                times.append(time.perf_counter() - began)
        await empty.put_back()
        await full.put_back()
    return {name: (median(few[1:]), median(many[1:])) for name, (few, many) in took.items()}


# Query plans


def sqlite_plans(path: Path) -> dict[str, list[str]]:
    queries, found = load_queries(DIALECT), {}
    with closing(sqlite3.connect(path)) as file:
        for name in PLANNED:
            [statement] = queries[name].statements
            rows = file.execute(f"EXPLAIN QUERY PLAN {statement.text}", _values(statement.parameters)).fetchall()
            found[name] = [
                row[3] for row in rows if "jobs" in row[3] or "workers" in row[3] or row[3].startswith(("SCAN", "SEARCH"))
            ]
    return found


async def postgres_plans(url: str) -> dict[str, list[str]]:
    queries, found = load_queries(dialect("drumbeat")), {}
    connection = await asyncpg.connect(url, server_settings=postgres._PLANS)
    for name in PLANNED:
        [statement] = queries[name].statements
        values = _values(statement.parameters)
        rows = await connection.fetch(f"EXPLAIN {statement.text}", *(values[each] for each in statement.parameters))
        found[name] = [row[0].strip() for row in rows if "Scan" in row[0] and (" on jobs" in row[0] or " on workers" in row[0])]
    await connection.close()
    return found


def _values(names: Sequence[str]) -> dict[str, Any]:
    known: dict[str, Any] = {"pool_id": str(POOL), "statuses": '["pending","claimed"]', "named": "[]", "status": "done"}
    known |= {"type": None, "group": None, "worker_id": None, "holder_pool": None, "instance": None, "after": 0}
    known |= {"limit": 100, "most": 10_000, "priority": 0, "seq": 10**9, "age": 7 * _DAY_US}
    return {name: known[name] for name in names}


# Pruning while others push


def push_on_and_on(url: str, ready: Event, over: Event, answer: Any) -> None:
    """Push job after job, and measure each push and its wait for a processor. Runs in another process."""

    async def work() -> tuple[list[tuple[float, float]], int]:
        took: list[tuple[float, float]] = []
        failed = 0
        async with open_store(url) as store:
            for _ in range(20):
                await store.queue.push(POOL, [NewJob(payload={})])
            ready.set()
            while not over.is_set():
                began, waited = time.perf_counter(), waited_for_cpu()
                try:
                    await store.queue.push(POOL, [NewJob(payload={})])
                except Exception as exc:
                    failed += 1
                    print(f"push failed: {exc}", file=sys.stderr)
                took.append((time.perf_counter() - began, waited_for_cpu() - waited))
                await asyncio.sleep(BETWEEN)
        return took, failed

    answer.send(asyncio.run(work()))


def waited_for_cpu() -> float:
    """Return the seconds that the threads of this process waited for a processor; 0 if the system does not report it."""
    files = Path("/proc/self/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[1]) for file in files) / 1e9


async def pushed_during(url: str, work: Callable[[], Awaitable[Any]]) -> tuple[dict[str, float], Any]:
    """Return the durations of another process's pushes while ``work`` runs, and the result of ``work``."""
    fresh = multiprocessing.get_context("spawn")
    ready, over = fresh.Event(), fresh.Event()
    here, there = fresh.Pipe(duplex=False)
    pusher = fresh.Process(target=push_on_and_on, args=(url, ready, over, there))
    pusher.start()
    try:
        await asyncio.to_thread(ready.wait, 60)
        began = time.perf_counter()
        done = await work()
        seconds = time.perf_counter() - began
    finally:
        over.set()
    timed, failed = await asyncio.to_thread(here.recv)
    await asyncio.to_thread(pusher.join, 60)
    took = [seconds for seconds, _ in timed]
    figures = {"pushes": len(took), "failed": failed, "seconds": seconds, "longest_ms": max(took) * 1e3}
    figures["longest_on_cpu_ms"] = max(each - min(waited, each) for each, waited in timed) * 1e3
    return {**figures, "p99_ms": percentile(took, 99) * 1e3, "median_ms": median(took) * 1e3}, done


@dataclass(slots=True)
class Timed:
    """Measures the steps of pruning; each is one transaction. This process does nothing else meanwhile."""

    upkeep: Upkeep
    rows: int = 0
    longest: float = 0.0
    longest_on_cpu: float = 0.0

    async def prune_some(self, pool_id: PoolId, what: Prunable, older_than: timedelta) -> Pruned:
        began, busy = time.perf_counter(), time.process_time()
        step = await self.upkeep.prune_some(pool_id, what, older_than)
        self.longest = max(self.longest, time.perf_counter() - began)
        self.longest_on_cpu = max(self.longest_on_cpu, time.process_time() - busy)
        self.rows += step.rows
        return step


async def prune(store: Store, seconds: float | None) -> Timed:
    """Prune as retention does, for at most ``seconds``."""
    timed = Timed(store.upkeep)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await prune_all(timed, [POOL], [Prunable.DONE], KEPT)
    return timed


async def pruning(url: str, store: Store, seconds: float | None) -> dict[str, Any]:
    alone, _ = await pushed_during(url, lambda: asyncio.sleep(min(seconds or 20, 20)))
    beside, timed = await pushed_during(url, lambda: prune(store, seconds))
    steps = {"longest_step_ms": timed.longest * 1e3, "longest_step_on_cpu_ms": timed.longest_on_cpu * 1e3}
    say(f"{timed.rows:,} rows pruned; {steps}")
    return {"rows": timed.rows, "alone": alone, "pruning": beside, **steps}


# All stores


@contextmanager
def places(name: str, within: Path | None) -> Iterator[tuple[str, str]]:
    """Yield the URLs of two empty stores of one kind."""
    with ExitStack() as stack:
        if name == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=within))
            yield f"sqlite:///{folder}/empty.db", f"sqlite:///{folder}/full.db"
        elif name == "postgresql":
            server = stack.enter_context(PostgresServer(folder=within))
            yield server.new_database(), server.new_database()
        else:
            redis = stack.enter_context(RedisServer())
            yield redis.url(database=0), redis.url(database=1)


async def plans_of(url: str) -> dict[str, list[str]]:
    if url.startswith("sqlite"):
        return sqlite_plans(Path(url.removeprefix("sqlite:///")))
    return await postgres_plans(url) if url.startswith("postgres") else {}


async def one_store(name: str, sizes: Sizes, within: Path | None) -> dict[str, Any]:
    with places(name, within) as (empty_url, full_url):
        async with open_store(empty_url, create=True) as empty, open_store(full_url, create=True) as full:
            scenes = Scene(empty), Scene(full)
            if isinstance(full, RedisStore):
                await full.database.command(b"SET", full.database.key("job_count"), sizes.jobs)
            for scene in scenes:
                await scene.begin()
            began = time.perf_counter()
            await fill(full_url, full, sizes)
            took = time.perf_counter() - began
            say(f"{name}: {sizes.jobs:,} finished jobs and {sizes.workers:,} ended workers, written in {took:.0f} s")
            times = await measured(*scenes, sizes.rounds)
            counts = await full.jobs.counts(POOL)
            plans = await plans_of(full_url)
            for query, lines in plans.items():
                say(f"{name} {query}: {'; '.join(lines)}")
            pruned = await pruning(full_url, full, sizes.prune_for)
            left = await full.jobs.counts(POOL)
            return {"times": times, "done": counts.done, "left": left.done, "plans": plans, "pruning": pruned}


def show(found: Mapping[str, Mapping[str, Any]]) -> None:
    rows = [
        [store, name, f"{few * 1e3:.2f}", f"{many * 1e3:.2f}", f"{many / few:.2f}"]
        for store, figures in found.items()
        for name, (few, many) in figures["times"].items()
    ]
    print_table(["store", "operation", "empty ms", "full ms", "ratio"], rows)
    columns = ("pushes", "failed", "median_ms", "p99_ms", "longest_ms", "longest_on_cpu_ms", "seconds")
    print_table(
        ["store", "while", *columns],
        [
            [store, what, *(f"{figures['pruning'][what][each]:.1f}" for each in columns)]
            for store, figures in found.items()
            for what in ("alone", "pruning")
        ],
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--stores", nargs="+", choices=STORES, default=STORES)
    options.add_argument("--jobs", type=int, default=2_000_000)
    options.add_argument("--workers", type=int, default=50_000)
    options.add_argument("--folder", type=Path, help="folder for the files of SQLite and PostgreSQL, such as /dev/shm")
    options.add_argument("--prune-for", type=float, metavar="SECONDS", help="prune for at most this long")
    given = options.parse_args()
    sizes = Sizes(given.jobs, given.workers, 21, given.prune_for)
    if given.quick:
        sizes = Sizes(40_000, 4_000, 15, 10.0)
    found = {name: asyncio.run(one_store(name, sizes, given.folder)) for name in given.stores}
    show(found)
    report = Report(benchmark="pool_history")
    for store, figures in found.items():
        report.ratios |= {f"{store}_{name}": many / few for name, (few, many) in figures["times"].items()}
        report.figures[store] = {**{key: value for key, value in figures.items() if key != "times"}, "jobs": sizes.jobs}
    report.figures["within_aims"] = {
        "ratios": all(ratio <= MOST_RATIO for ratio in report.ratios.values()),
        "pushes": all(each["pruning"]["pruning"]["longest_ms"] <= MOST_WAIT * 1e3 for each in found.values()),
    }
    report.note_versions(["asyncpg", "redis"], sqlite=sqlite3.sqlite_version)
    report.print()


if __name__ == "__main__":
    main()
