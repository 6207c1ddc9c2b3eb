"""Cost and wait of our policy, the seed's default and three other autoscalers' rules, on several loads at three spawn lags.

python benchmarks/fleet_economy.py [--load "azure code"] [--lag 120] [--rule lag_aware] [--hours 24]

Cost is paid worker-hours over those of the clairvoyant zero-wait oracle (drumbeat.fleet.simulate.oracle), starts included. A
policy can be cheap by letting jobs wait: read both columns. The seed's default is its policy with 2 workers at least and 3 jobs
to a worker, but no maximum, like all others here.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import kit  # noqa: F401
from drumbeat.fleet.laboratory import policy_for, simulate_load
from drumbeat.fleet.simulate import Load, Outcome, Surroundings, simulate
from kit.fleet_loads import loads
from kit.fleet_rivals import DaskLike, HpaLike, KedaLike
from kit.report import Report, parser, print_table, say

MOST = 1000
LAGS = (15, 120, 300)
Rule = Callable[[Load, Surroundings], Outcome]


def ours(name: str, load: Load, around: Surroundings) -> Outcome:
    return simulate_load(load, policy_for(name, {"max_workers": MOST}), around).outcome


def rival(name: str, kind: type[HpaLike | DaskLike], load: Load, around: Surroundings) -> Outcome:
    return simulate(load, kind(MOST), around, name=name, every=kind.every, sleeps=False)


RULES: Mapping[str, Rule] = {
    "lag_aware": partial(ours, "lag_aware"),
    "seed default": partial(ours, "queue_ratio"),
    "queue_cover": partial(ours, "queue_cover"),
    "hpa-like": partial(rival, "hpa-like", HpaLike),
    "keda-like": partial(rival, "keda-like", KedaLike),
    "dask-like": partial(rival, "dask-like", DaskLike),
}


def measure(load: str, lag: int, rule: str, hours: float) -> dict[str, Any]:
    found = RULES[rule](loads(hours)[load], Surroundings(spawn_lag=timedelta(seconds=lag)))
    return {
        "load": load,
        "lag_s": lag,
        "rule": rule,
        "jobs": found.jobs,
        "cost_ratio": round(found.cost_ratio, 3),
        "wait_p50_s": round(found.wait_p50_s, 1),
        "wait_p95_s": round(found.wait_p95_s, 1),
        "wait_p99_s": round(found.wait_p99_s, 1),
        "spawns": found.spawns,
        "flaps": found.flaps,
        "short_lives": found.short_lives,
        "most_workers": found.most_workers,
    }


def judged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How lag_aware stands beside the seed's default, and against the aim at a lag of 120 s."""
    by = {(row["load"], row["lag_s"], row["rule"]): row for row in rows}
    pairs = [(mine, by.get((load, lag, "seed default"))) for (load, lag, rule), mine in by.items() if rule == "lag_aware"]
    worse = [
        f"{mine['load']} at {mine['lag_s']} s"
        for mine, seed in pairs
        if seed and (mine["cost_ratio"] > seed["cost_ratio"] or mine["wait_p95_s"] > seed["wait_p95_s"])
    ]
    missed = [
        mine["load"] for mine, _ in pairs if mine["lag_s"] == 120 and (mine["cost_ratio"] > 1.05 or mine["wait_p95_s"] >= 80)
    ]
    return {"compared": len(pairs), "not_dominated": worse, "aim_missed_at_120_s": missed}


COLUMNS = ("load", "lag_s", "rule", "cost_ratio", "wait_p50_s", "wait_p95_s", "wait_p99_s", "spawns", "flaps", "most_workers")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--hours", type=float, help="how long the synthetic loads last; else 24, or 3 if quick")
    options.add_argument("--load", action="append", help="only this load; may be given again")
    options.add_argument("--lag", action="append", type=int, help="only this spawn lag in seconds; may be given again")
    options.add_argument("--rule", action="append", help="only this rule; may be given again")
    options.add_argument("--processes", type=int, default=2)
    given = options.parse_args()
    hours = given.hours or (3.0 if given.quick else 24.0)
    lags = given.lag or ((120,) if given.quick else LAGS)
    cases = [
        (load, lag, rule)
        for load in loads(hours)
        if not given.load or load in given.load
        for lag in lags
        for rule in given.rule or RULES
    ]
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(given.processes) as pool:
        for row in pool.map(measure, *zip(*cases, strict=True), [hours] * len(cases)):
            rows.append(row)
            say("  ".join(str(row[name]) for name in COLUMNS))
    print_table(COLUMNS, [[row[name] for name in COLUMNS] for row in rows])
    report = Report("fleet_economy", figures={**judged(rows), "rows": rows})
    report.note_versions(["drumbeat"])
    report.print()


if __name__ == "__main__":
    main()
