"""Try the engines that can run on this machine, by Drumbeat's usual commands: five SSH hosts, Docker, Slurm, Ray.

On each engine: a burst of jobs, a fleet that grows and shrinks, and a search for the most connections a database takes. The
engines are real, installed and started by this script (root and Linux are needed). In the table, ``first result`` is the time
from a push to its result if no worker runs yet, and ``floor`` the time that the engine itself needs to start a program.
"""

import sys
import tempfile
from pathlib import Path

import kit  # noqa: F401  (makes the tests' harness importable)
from e2e.engine_sites import SITES
from e2e.engine_tour import TourFigures, tour
from kit.report import Report, parser, print_table, say

FLOORS = {"ssh": 0.5, "docker": 1.1, "slurm": 2.0, "ray": 5.0}  #: seconds
AIM = 0.5  #: goal: at most this many seconds more than the floor


def toured(name: str) -> TourFigures:
    with tempfile.TemporaryDirectory(prefix="engines-tour-") as folder, SITES[name](Path(folder)) as place:
        say(f"{name}: begun")
        found = tour(place.site, place.target)
    say(f"{name}: first result after {found.first_result:.2f} s, a burst in {found.burst:.1f} s, best {found.best_connections}")
    return found


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--engines", nargs="+", choices=list(SITES), default=list(SITES), help="only these engines")
    told = options.parse_args()
    found = {name: toured(name) for name in (["ssh"] if told.quick else told.engines)}
    print_table(
        ["engine", "first result", "floor", "added", f"burst of {12}", "most workers", "shrunk after", "best", "verdict"],
        [
            [
                name,
                f"{each.first_result:.2f} s",
                f"{FLOORS[name]:.1f} s",
                f"{each.first_result - FLOORS[name]:+.2f} s",
                f"{each.burst:.1f} s",
                each.most_workers,
                f"{each.shrunk:.1f} s",
                each.best_connections,
                each.verdict,
            ]
            for name, each in found.items()
        ],
    )
    report = Report("engines_tour")
    report.figures = {f"{name}_first_result_seconds": each.first_result for name, each in found.items()}
    report.figures |= {f"{name}_added_seconds": each.first_result - FLOORS[name] for name, each in found.items()}
    report.note_versions(["drumbeat", "asyncssh"])
    report.print()
    return any(each.first_result > FLOORS[name] + AIM for name, each in found.items())


if __name__ == "__main__":
    sys.exit(main())
