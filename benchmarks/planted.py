"""Mutation testing: plant known bugs in a copy of the source, one at a time, and check that the tests catch them.

The bugs are listed in benchmarks/planted/, one file for each area; kit/planting.py describes an entry. The checkout is never
changed: each slot has a copy of it and its own PostgreSQL. First the tests run on the unchanged copy and must pass. A bug is
caught when a test fails; a test run that hangs counts only if the entry says so. The exit status is 1 if fewer than 95 % are
caught, or if a bug no longer fits the source, breaks the import or has no tests.

python benchmarks/planted.py --area fleet --jobs 2
python benchmarks/planted.py --only 'settle_and_claim' --survivors survivors.txt
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import kit  # noqa: F401  (makes the tests' servers importable)
from kit.planted_slots import ROOT, Running, Slot, load_once, run_killed_again
from kit.planting import Bug, CannotPlant, listed
from kit.report import Report, parser, print_table, say
from servers.places import memory_folder
from servers.postgres import PostgresServer

ENOUGH = 0.95
QUICK = 20  #: bugs of a quick run
LIMIT_SECONDS = 180.0
_CAUGHT, _SURVIVED, _BROKEN = "caught", "survived", "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result for one bug."""

    bug: Bug
    outcome: str
    by: str  #: the test that failed, or what went wrong
    seconds: float


def judged(done: Running, bug: Bug, code: int | None) -> Finding:
    seconds = time.monotonic() - done.began
    seen = done.slot.seen_by.read_text() if done.slot.seen_by.exists() else ""
    if code is None:
        outcome, by = (_CAUGHT if bug.hangs else _SURVIVED), "the tests did not end in time"
    elif code == 0:
        outcome, by = _SURVIVED, ""
    elif code < 0:
        outcome, by = _CAUGHT, f"the tests were killed by signal {-code}"
    elif seen:
        outcome, by = _CAUGHT, seen
    else:
        outcome, by = _BROKEN, f"pytest ended with {code}: {done.slot.log_tail().splitlines()[-1:]}"
    return Finding(bug=bug, outcome=outcome, by=by, seconds=seconds)


def check_green(slots: Sequence[Slot], bugs: Sequence[Bug], limit: float) -> None:
    """Check that the chosen tests pass without a bug; exit if not."""
    by_file: dict[str, set[str]] = {}
    for test in (test for bug in bugs for test in bug.tests):
        by_file.setdefault(test.partition("::")[0], set()).add(test)
    say(f"running the chosen tests of {len(by_file)} files without a bug")
    red = [
        f"without a bug pytest ended with {code} on {' '.join(done.tests)}:\n{done.slot.log_tail()}"
        for done, code in run_killed_again(slots, [(None, sorted(tests)) for tests in by_file.values()], limit * 4)
        if code != 0
    ]
    if red:
        raise SystemExit("\n".join(red))


def find(slots: Sequence[Slot], bugs: Sequence[Bug], limit: float) -> list[Finding]:
    found: list[Finding] = []
    for done, code in run_killed_again(slots, [(bug, bug.tests) for bug in bugs], limit):
        assert done.bug is not None
        finding = judged(done, done.bug, code)
        found.append(finding)
        which = f"{finding.bug.area}: {finding.bug.name}"
        say(f"{len(found):4}/{len(bugs)} {finding.seconds:5.1f} s  {finding.outcome:8}  {which}  {finding.by}")
    return found


def fits(bugs: Sequence[Bug]) -> list[str]:
    """Errors for bugs that no longer fit the source."""
    wrong: list[str] = []
    for bug in bugs:
        try:
            bug.planted_in((ROOT / "src" / "drumbeat" / bug.file).read_text())
        except (CannotPlant, FileNotFoundError) as exc:
            wrong.append(str(exc))
    return wrong


def tell(found: Sequence[Finding], survivors: Path | None, seconds: float) -> bool:
    """Print the results; returns whether enough bugs were caught."""
    caught = Counter(each.bug.area for each in found if each.outcome == _CAUGHT)
    areas = Counter(each.bug.area for each in found)
    share = caught.total() / len(found)
    print_table(
        ["area", "planted", "caught", "%"],
        [
            [area, number, caught[area], 100 * caught[area] / number]
            for area, number in [
                *areas.items(),
            ]
        ],
    )
    say(f"{caught.total()} of {len(found)} caught ({100 * share:.1f} %) in {seconds:.0f} s")
    left = [each for each in found if each.outcome != _CAUGHT]
    lines = [f"{each.outcome}: {each.bug.area}: {each.bug.name}: {each.bug.breaks} {each.by}".rstrip() for each in left]
    for line in lines:
        say(line)
    if survivors:
        survivors.write_text("".join(f"{line}\n" for line in lines))
    report = Report("planted", ratios={"caught": share})
    report.figures = {
        "areas": {area: f"{caught[area]}/{areas[area]}" for area in areas},
        "seconds": seconds,
        "survivors": lines,
    }
    report.print()
    return share >= ENOUGH and all(each.outcome != _BROKEN for each in left)


def read_options() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument(
        "--only", metavar="PATTERN", help="only bugs whose name, file or guarantee matches this regular expression"
    )
    options.add_argument("--area", action="append", help="only bugs of this area (repeatable)")
    options.add_argument("--jobs", type=int, default=2, help="bugs tested in parallel")
    options.add_argument(
        "--limit", type=float, default=LIMIT_SECONDS, metavar="SECONDS", help="time limit for the tests of one bug"
    )
    options.add_argument("--list", action="store_true", help="print the list and exit")
    options.add_argument("--survivors", type=Path, metavar="FILE", help="write the bugs that were not caught to this file")
    options.add_argument("--unchecked", action="store_true", help="skip the first run without a bug")
    return options.parse_args()


def choose(chosen: argparse.Namespace) -> list[Bug]:
    """Return the bugs that match the options."""
    bugs = [bug for bug in listed() if not chosen.area or bug.area in chosen.area]
    if chosen.only:
        bugs = [bug for bug in bugs if re.search(chosen.only, f"{bug.name}\n{bug.file}\n{bug.breaks}")]
    return bugs[:: max(1, len(bugs) // QUICK)] if chosen.quick else bugs


def new_slot(stack: ExitStack) -> Slot:
    """Make a slot in memory. Its copy of the checkout and its PostgreSQL are removed with the stack."""
    folder = tempfile.TemporaryDirectory(prefix="drumbeat-planted-", dir=memory_folder(), ignore_cleanup_errors=True)
    postgres = PostgresServer(settings={"fsync": "off"}, folder=memory_folder())
    return Slot(Path(stack.enter_context(folder)), stack.enter_context(postgres))


def main() -> int:
    chosen = read_options()
    bugs = choose(chosen)
    if chosen.list:
        for bug in bugs:
            print(json.dumps({"area": bug.area, "name": bug.name, "file": bug.file, "breaks": bug.breaks, "tests": bug.tests}))
        return 0
    if wrong := fits(bugs) or ([] if bugs else ["no bug matches --area and --only"]):
        say("\n".join(wrong))
        return 1
    load_once()
    began = time.monotonic()
    with ExitStack() as stack:
        slots = [new_slot(stack) for _ in range(min(chosen.jobs, len(bugs)))]
        if not chosen.unchecked:
            check_green(slots, bugs, chosen.limit)
        found = find(slots, bugs, chosen.limit)
    return 0 if tell(found, chosen.survivors, time.monotonic() - began) else 1


if __name__ == "__main__":
    sys.exit(main())
