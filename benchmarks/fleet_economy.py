"""Compare cost and waiting times of Drumbeat's scaling rules, of a fixed number of workers chosen in hindsight, and of rules of
three other autoscalers.

python benchmarks/fleet_economy.py [--load "azure code"] [--lag 120] [--rule lag_aware] [--hours 24] [--tune]

Each load is simulated with spawn lags (times to start a worker) of 10, 120 and 600 s, cold (no workers, nothing learned) and
warm (the same load a second time). Cost is paid worker-hours: starts count, and so does the time until a worker is really gone.
The columns and rules:

- "fixed": the smallest fixed number of workers whose 95th percentile of waits is no longer than the rule's; it is chosen with
  knowledge of the whole load. "over": the rule's cost divided by the cost of this number.
- "short": the share of workers that lived for less than two spawn lags.
- "lag_aware, told": the rule lag_aware, told the mean service time (expected_service).
- "queue_ratio": the default rule of the earlier RunPod orchestrator.

A rule can be cheap because it lets jobs wait, so compare both cost and waits.

--tune prints for each load the constant of lag_aware that is best on all other loads (leave one out).
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from functools import partial
from importlib import import_module
from statistics import fmean
from typing import Any

import kit  # noqa: F401
from drumbeat.fleet.simulate import SimulatedLoad, SimulatedProvider, SimulationResult, simulate
from drumbeat.fleet.simulate_files import policy_for, simulate_once
from kit.fleet_hindsight import cheapest
from kit.fleet_loads import loads
from kit.fleet_rivals import DaskLike, HpaLike, KedaLike
from kit.report import Report, parser, print_table, say

MOST = 1000
LAGS = (10, 120, 600)
ALLOWED = 1.10  #: the highest cost of lag_aware that is good, relative to the cost of the fixed size
SHORT = 0.10  #: share of workers that may live for less than two lags
#: Values that --tune compares: work that a new worker must find in the backlog, in units of the cost of a restart.
CHOICES = {f"MIN_RESTARTS={value:g}": value for value in (1.0, 2.0, 4.0)}
USED = "MIN_RESTARTS=2"
Rule = Callable[[SimulatedLoad, SimulatedProvider, int], SimulationResult]


def ours(name: str, load: SimulatedLoad, around: SimulatedProvider, skip: int) -> SimulationResult:
    return simulate_once(load, policy_for(name, {"max_workers": MOST}), around, skip)


def told(load: SimulatedLoad, around: SimulatedProvider, skip: int) -> SimulationResult:
    hint = sum(load.durations) / len(load)
    return simulate_once(load, policy_for("lag_aware", {"max_workers": MOST, "expected_service": hint}), around, skip)


def rival(
    name: str, kind: type[HpaLike | DaskLike], load: SimulatedLoad, around: SimulatedProvider, skip: int
) -> SimulationResult:
    return simulate(load, kind(MOST), around, name=name, every=kind.every, sleeps=False, skip=skip)


RULES: Mapping[str, Rule] = {
    "lag_aware": partial(ours, "lag_aware"),
    "lag_aware, told": told,
    "queue_ratio": partial(ours, "queue_ratio"),
    "queue_cover": partial(ours, "queue_cover"),
    "hpa-like": partial(rival, "hpa-like", HpaLike),
    "keda-like": partial(rival, "keda-like", KedaLike),
    "dask-like": partial(rival, "dask-like", DaskLike),
}


def measure(name: str, lag: int, rule: str, start: str, hours: float, choice: str = USED) -> dict[str, Any]:
    load = loads(hours)[name]
    run, skip = (load.twice(), len(load)) if start == "warm" else (load, 0)
    _choose(choice)
    found = RULES[rule](run, SimulatedProvider(spawn_lag=timedelta(seconds=lag)), skip)
    best = cheapest(run, lag, found.wait_p95_s, skip)
    return {
        "load": name,
        "lag_s": lag,
        "start": start,
        "rule": rule,
        "choice": choice,
        "jobs": found.jobs,
        "hours": round(found.worker_hours, 1),
        "wait_p50_s": round(found.wait_p50_s, 1),
        "wait_p95_s": round(found.wait_p95_s, 1),
        "wait_mean_s": round(found.wait_mean_s, 1),
        "fixed": best.workers if best else None,
        "fixed_hours": round(best.hours, 1) if best else None,
        "over": round(found.worker_hours / best.hours, 2) if best else 0.0,
        "oracle": round(found.cost_ratio, 2),
        "spawns": found.spawns,
        "short": round(found.short_lives / max(found.spawns, 1), 2),
        "most_workers": found.most_workers,
    }


def _choose(choice: str) -> None:
    """Set the constant that --tune varies. Each process runs one case at a time."""
    vars(import_module("drumbeat.fleet.policies.lag_aware"))["MIN_RESTARTS"] = CHOICES[choice]


def judged(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the cases in which lag_aware costs too much compared with the fixed size, or its workers live too briefly."""
    mine = [row for row in rows if row["rule"].startswith("lag_aware")]
    return {
        "compared": len(mine),
        "above_fixed": [_named(row, "over") for row in mine if row["over"] > ALLOWED],
        "short_lives": [_named(row, "short") for row in mine if row["short"] > SHORT],
        "worst_warm": max((row["over"] for row in mine if row["start"] == "warm"), default=0.0),
        "worst_cold": max((row["over"] for row in mine if row["start"] == "cold"), default=0.0),
    }


def _named(row: Mapping[str, Any], figure: str) -> str:
    return f"{row['rule']} on {row['load']}, {row['lag_s']} s, {row['start']}: {row[figure]}"


def left_out(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return for each load the choice with the least excess cost on all other loads, and its result on this load."""
    return [_held_out(rows, name) for name in dict.fromkeys(row["load"] for row in rows)]


def _held_out(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    others = {choice: _excess([row for row in rows if row["load"] != name and row["choice"] == choice]) for choice in CHOICES}
    chosen = min(others, key=lambda choice: others[choice])
    held = [row for row in rows if row["load"] == name and row["choice"] == chosen]
    return {
        "held_out": name,
        "choice": chosen,
        "excess_on_others": round(others[chosen], 3),
        "over_mean": round(fmean(row["over"] for row in held), 2),
        "over_worst": max(row["over"] for row in held),
        "wait_p95_worst_s": max(row["wait_p95_s"] for row in held),
    }


def _excess(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean excess over the fixed size's cost. A lower cost on one load does not offset an excess on another."""
    return fmean([max(row["over"] - 1, 0.0) for row in rows]) if rows else 0.0


COLUMNS = ("load", "lag_s", "start", "rule", "hours", "wait_p95_s", "fixed", "fixed_hours", "over", "oracle", "spawns", "short")
HELD_OUT = ("held_out", "choice", "excess_on_others", "over_mean", "over_worst", "wait_p95_worst_s")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--hours", type=float, help="length of the synthetic loads; default 24, or 3 with --quick")
    options.add_argument("--load", action="append", help="only this load (repeatable)")
    options.add_argument("--lag", action="append", type=int, help="only this spawn lag in seconds (repeatable)")
    options.add_argument("--rule", action="append", help="only this rule (repeatable)")
    options.add_argument("--tune", action="store_true", help="leave-one-out tuning of lag_aware")
    options.add_argument("--processes", type=int, default=2)
    given = options.parse_args()
    hours = given.hours or (3.0 if given.quick else 24.0)
    rules = ["lag_aware"] if given.tune else given.rule or list(RULES)
    cases = [
        (load, lag, rule, start, hours, choice)
        for load in loads(hours)
        if not given.load or load in given.load
        for lag in given.lag or LAGS
        for rule in rules
        for start in ("cold", "warm")
        for choice in (CHOICES if given.tune else [USED])
    ]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(given.processes) as pool:
        for row in pool.map(measure, *zip(*cases, strict=True)):
            rows.append(row)
            say("  ".join(str(row[name]) for name in (*COLUMNS, "choice")))
    tuned = left_out(rows) if given.tune else []
    print_table(COLUMNS, [[row[name] for name in COLUMNS] for row in rows if row["choice"] == USED])
    if tuned:
        print_table(HELD_OUT, [[row[name] for name in HELD_OUT] for row in tuned])
    used = [row for row in rows if row["choice"] == USED]
    report = Report("fleet_economy", figures={**judged(used), "left_out": tuned, "rows": rows})
    report.note_versions(["drumbeat"])
    report.print()


if __name__ == "__main__":
    main()
