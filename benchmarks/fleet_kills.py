"""The fleet's promises under kill -9: by default 100 runs of real controllers and real workers on this machine.

In each run controllers scale three pools of jobs in one SQLite store, whose workers have equal ids, at two beats a second and
with impatient limits, while controllers and workers are killed with SIGKILL at random moments and controllers are started
again. Afterwards every job must be done, and once, and none may have been touched on account of another pool's worker; no
process may be left; no worker may ever have been two processes, and no pool more workers than its maximum. ``--seed N`` runs
one alone.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import kit  # noqa: F401  (makes the tests' harness importable)
from e2e.fleet_kills import JOBS, POOLS, Toll, fought
from kit.report import Report, parser, say

RUNS, QUICK = 100, 3


def one(seed: int) -> Toll:
    with tempfile.TemporaryDirectory(prefix="fleet-kills-") as folder:
        toll = asyncio.run(fought(seed, Path(folder)))
    say(
        f"seed {seed}: {toll.controllers} controllers and {toll.workers} workers killed, {toll.started} workers started: "
        + ("; ".join(toll.wrong) or "as promised")
    )
    return toll


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, help=f"how many ({RUNS}; with --quick {QUICK})")
    options.add_argument("--first", type=int, default=0, help="the first seed")
    options.add_argument("--seed", type=int, help="run this one alone")
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
