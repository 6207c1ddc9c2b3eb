"""Check the fleet's guarantees while real controllers and workers on this machine are killed (kill -9): by default 100 runs.

In each run controllers scale three pools of jobs in one SQLite store, whose workers have the same ids, at two beats a second
and with short timeouts. Controllers and workers are killed with SIGKILL at random moments, and controllers are restarted. At
the end every job must be done exactly once, no job affected by another pool's worker, no process left, no worker run by two
processes, and no pool above its maximum. ``--seed N`` runs one seed.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import kit  # noqa: F401  (makes the tests' harness importable)
from e2e.fleet_kills import JOBS, POOLS, Ground, Toll, fought
from kit.report import Report, parser, say

RUNS, QUICK = 100, 3


def one(seed: int) -> Toll:
    with tempfile.TemporaryDirectory(prefix="fleet-kills-") as folder:
        toll = asyncio.run(fought(seed, Ground(Path(folder))))
    say(
        f"seed {seed}: {toll.controllers} controllers and {toll.workers} workers killed, {toll.started} workers started: "
        + ("; ".join(toll.wrong) or "all guarantees held")
    )
    return toll


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, help=f"number of runs (default {RUNS}; with --quick {QUICK})")
    options.add_argument("--first", type=int, default=0, help="the first seed")
    options.add_argument("--seed", type=int, help="run only this seed")
    told = options.parse_args()
    count = told.runs or (QUICK if told.quick else RUNS)
    seeds = [told.seed] if told.seed is not None else range(told.first, told.first + count)
    tolls = [one(seed) for seed in seeds]
    failed = [toll.seed for toll in tolls if toll.wrong]
    report = Report("fleet_kills")
    report.figures = {
        "runs": len(tolls),
        "jobs": JOBS * len(POOLS) * len(tolls),
        "controllers_killed": sum(toll.controllers for toll in tolls),
        "workers_killed": sum(toll.workers for toll in tolls),
        "workers_started": sum(toll.started for toll in tolls),
        "foreign": sum(any(each.startswith("foreign") for each in toll.wrong) for toll in tolls),
        "runs_not_as_promised": len(failed),
        "failed_seeds": failed,
    }
    report.note_versions(["drumbeat"])
    report.print()
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
