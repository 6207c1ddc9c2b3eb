"""Check a fleet's guarantees while processes on its engine are killed and links are cut: by default 200 rounds on each engine,
six in each run.

In each run, controllers scale three pools of jobs in one PostgreSQL store. The pools' workers have the same ids, and run on one
engine: over SSH on two hosts (network namespaces), in Docker containers, or as Slurm jobs. In each round, a controller or a
worker is killed (kill -9), or a link is cut or the engine is paused for up to nine seconds. At the end every job must be done
exactly once, no job affected by another pool's worker, nothing left running, no worker run twice, no pool above its maximum.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

import kit  # noqa: F401  (makes the tests' harness importable)
from e2e.engine_grounds import GROUNDS, GroundFactory
from e2e.fleet_kills import JOBS, KILLS, POOLS, Toll, fought
from kit.report import Report, parser, print_table, say

ROUNDS, QUICK = 200, 6


def one(seed: int, ground: GroundFactory) -> Toll:
    with tempfile.TemporaryDirectory(prefix="engine-kills-") as folder:
        toll = asyncio.run(fought(seed, ground(Path(folder))))
    say(
        f"seed {seed}: {toll.controllers} controllers and {toll.workers} workers killed, {toll.disturbed} disturbances, "
        f"{toll.started} workers started: " + ("; ".join(toll.wrong) or "all guarantees held")
    )
    return toll


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--engines", nargs="+", choices=list(GROUNDS), default=list(GROUNDS), help="only these engines")
    options.add_argument("--rounds", type=int, help=f"kills and cuts on each engine (default {ROUNDS}; with --quick {QUICK})")
    options.add_argument("--first", type=int, default=0, help="the first seed")
    told = options.parse_args()
    runs = -(-(told.rounds or (QUICK if told.quick else ROUNDS)) // KILLS)
    tolls: dict[str, list[Toll]] = {}
    for name in told.engines:
        say(f"{name}: {runs} runs of {KILLS} rounds")
        with GROUNDS[name]() as ground:
            tolls[name] = [one(seed, ground) for seed in range(told.first, told.first + runs)]
    rows = [
        [
            name,
            sum(each.controllers for each in found),
            sum(each.workers for each in found),
            sum(each.disturbed for each in found),
            sum(each.started for each in found),
            JOBS * len(POOLS) * len(found),
            sum(bool(each.wrong) for each in found),
        ]
        for name, found in tolls.items()
    ]
    print_table(["engine", "controllers killed", "workers killed", "cuts", "workers started", "jobs", "failed runs"], rows)
    failed = {name: [each.seed for each in found if each.wrong] for name, found in tolls.items()}
    report = Report("engine_kills")
    report.figures = {"rounds": runs * KILLS, "failed_seeds": failed, "rows": rows}
    report.note_versions(["drumbeat", "asyncssh"])
    report.print()
    return any(failed.values())


if __name__ == "__main__":
    sys.exit(main())
