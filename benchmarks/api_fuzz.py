"""Fuzz the whole HTTP API with schemathesis: examples, boundary values, random values, and sequences of calls.

Runs a real ``drumbeat serve`` with authentication and some data. The exit code is 1 if an answer is a server error or does not
match the API's schema.

    python benchmarks/api_fuzz.py --quick     about 1,500 cases
    python benchmarks/api_fuzz.py             more than 5,000
"""

import sys
import tempfile
import time
from pathlib import Path

import kit  # noqa: F401
from kit.report import Report, parser, print_table, say
from web.fuzzing import Fuzzed, fuzz, serving

#: phases, and the number of cases for each operation or sequence of calls
WHOLE = (("examples,coverage", 1), ("fuzzing", 30), ("stateful", 150))
QUICK = (("examples,fuzzing", 12), ("stateful", 20))


def main() -> None:
    options = parser(__doc__).parse_args()
    report = Report("api_fuzz")
    report.note_versions(("schemathesis", "fastapi"))
    rows: list[tuple[str, int, int, float]] = []
    with tempfile.TemporaryDirectory(prefix="drumbeat-fuzz-") as folder, serving(Path(folder)) as address:
        for phases, examples in QUICK if options.quick else WHOLE:
            began = time.monotonic()
            found = fuzz(address, Path(folder), examples, phases)
            rows.append((phases, found.cases, found.code, time.monotonic() - began))
            _tell(found)
    print_table(("phases", "cases", "exit code", "seconds"), rows)
    report.figures = {"cases": sum(row[1] for row in rows), "failed": any(row[2] for row in rows)}
    report.print()
    sys.exit(1 if report.figures["failed"] else 0)


def _tell(found: Fuzzed) -> None:
    if found.code:
        say(found.said[-8000:])


if __name__ == "__main__":
    main()
