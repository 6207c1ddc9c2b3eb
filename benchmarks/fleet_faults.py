"""The fleet's guarantees under simulated faults, in virtual time: by default 10,000 runs, each reproducible by its seed.

In each run three fleets, whose workers have the same ids, share a store in memory and an account of a simulated RunPod. Each
has two controllers with the real loop, decision and RunPod spawner. Controllers are killed before and after any call; their
calls get no answer, a late one, or take effect after they died. The provider loses answers, creates duplicate pods, shows pods
late, omits them from lists, invents some, keeps deleted ones, and refuses in every way it can. The store's clock jumps, workers
are killed or go silent, a user drains some and kills one. Then the faults stop, and these guarantees are checked:

- no fleet touches another fleet's workers or jobs, and no job is taken from a healthy worker;
- never more pods than a fleet's maximum, no orphaned pod, no second pod created by us, no healthy worker marked lost;
- no job is lost or completed twice;
- by the provider's meter no hour, day or month exceeds its ceiling by more than one pod's billing granule, and no pod is bought
  without money.

In two of five runs a ceiling limits the fleet: there is twice as much work as it pays for. tests/simulate/fleet_purse.py
computes how much a ceiling may be exceeded while all controllers are dead; such runs are counted. ``--seed N`` runs one seed
and prints its faults.
"""

import gc
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import kit  # noqa: F401  (makes the tests' simulator importable)
from kit.report import Report, parser, print_table, say
from simulate.fleet_verdict import Verdict, judged

RUNS, QUICK = 10_000, 200
PROCESSES = 2
_CHUNK = 10


@dataclass(slots=True)
class Totals:
    """The figures and the broken guarantees of all runs together."""

    runs: int = 0
    jobs: int = 0
    waiting: int = 0
    pods: int = 0
    beats: int = 0
    hours: float = 0.0
    tight: int = 0  #: runs in which a ceiling limits the fleet
    spent_most: int = 0  #: those of them in which at least half of the ceiling was spent
    excused: int = 0  #: runs in which a ceiling was exceeded while no controller could prevent it
    worst: float = -1.0  #: how far a ceiling was exceeded at most in the other runs, in billing granules
    met: Counter[str] = field(default_factory=Counter)
    failed: dict[int, list[str]] = field(default_factory=dict)

    def add(self, verdict: Verdict) -> None:
        self.runs += 1
        self.jobs += verdict.jobs
        self.waiting += verdict.waiting
        self.pods += verdict.pods
        self.beats += verdict.beats
        self.hours += verdict.minutes / 60
        self.tight += verdict.tight
        self.spent_most += verdict.tight and verdict.used >= 0.5
        self.excused += verdict.passed > verdict.granule
        if verdict.passed <= verdict.granule:
            self.worst = max(self.worst, verdict.passed / verdict.granule)
        self.met += verdict.met
        if verdict.wrong:
            self.failed[verdict.seed] = verdict.wrong
            say(f"seed {verdict.seed}: {'; '.join(verdict.wrong)}")

    def broken(self, promise: str) -> int:
        """Return in how many runs a guarantee was broken."""
        return sum(any(each.startswith(promise) for each in wrong) for wrong in self.failed.values())


def run_all(first: int, count: int) -> Totals:
    totals = Totals()
    judged(first)  # loads all code that a run needs: the report names it, and the forked processes share it
    with ProcessPoolExecutor(PROCESSES, initializer=gc.set_threshold, initargs=(100_000,)) as processes:
        for verdict in processes.map(judged, range(first, first + count), chunksize=_CHUNK):
            totals.add(verdict)
            if totals.runs % 500 == 0:
                say(f"{totals.runs} runs, {len(totals.failed)} failed")
    return totals


def tell(totals: Totals) -> None:
    say(f"{totals.runs} runs, {totals.beats} beats, {totals.hours:.0f} virtual hours, {totals.pods} pods, {totals.jobs} jobs")
    say(f"{totals.waiting} jobs were left waiting for money; a ceiling limited the fleet in {totals.tight} runs,")
    say(f"in {totals.spent_most} of them at least half of it was spent; the worst hour, day or month was {totals.worst:+.2f}")
    say(f"granules from its ceiling, not counting {totals.excused} runs in which no controller could prevent it")
    kinds = Counter[str]()
    for name, count in totals.met.items():
        kinds[name.split(" ", 1)[0] if name.startswith(("died", "late", "no answer")) else name] += count
    print_table(["fault", "times"], [[name, count] for name, count in kinds.most_common()])
    died = {name: count for name, count in totals.met.items() if name.startswith("died")}
    print_table(["controller killed", "times"], [[name[5:], count] for name, count in sorted(died.items())])


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, help=f"number of runs (default {RUNS}; with --quick {QUICK})")
    options.add_argument("--first", type=int, default=0, help="the first seed")
    options.add_argument("--seed", type=int, help="run only this seed")
    told = options.parse_args()
    if told.seed is not None:
        verdict = judged(told.seed)
        print_table(["fault or event", "times"], [[name, count] for name, count in verdict.met.most_common()])
        say("; ".join(verdict.wrong) or "all guarantees held")
        return bool(verdict.wrong)
    totals = run_all(told.first, told.runs or (QUICK if told.quick else RUNS))
    tell(totals)
    report = Report("fleet_faults")
    report.figures = {
        "runs": totals.runs,
        "jobs": totals.jobs,
        "pods": totals.pods,
        "beats": totals.beats,
        "virtual_hours": totals.hours,
        "faults": sum(totals.met.values()),
        "kinds_of_faults": len(totals.met),
        "controllers_killed": sum(count for name, count in totals.met.items() if name.startswith("died")),
        "orphans": totals.broken("orphans"),
        "double_spawns": totals.broken("spawned twice"),
        "jobs_lost": totals.broken("undone") + totals.broken("done by nobody"),
        "jobs_completed_twice": totals.broken("completed twice"),
        "foreign": totals.broken("foreign"),
        "jobs_taken_from_the_living": totals.broken("taken"),
        "above_the_maximum": totals.broken("more than the maximum"),
        "ceiling_passed": totals.broken("passed"),
        "bought_without_money": totals.broken("bought"),
        "given_up_though_well": totals.broken("given up"),
        "runs_with_a_ceiling_that_binds": totals.tight,
        "of_these_at_least_half_spent": totals.spent_most,
        "passed_while_nobody_was_able": totals.excused,
        "worst_in_granules_from_ceiling": totals.worst,
        "failed_seeds": sorted(totals.failed),
    }
    report.note_versions(["drumbeat", "httpx", "msgspec"])
    report.print()
    return bool(totals.failed)


if __name__ == "__main__":
    sys.exit(main())
