"""Run one workload on four database engines: PostgreSQL, MariaDB, SQLite and DuckDB.

The engines are very different: the table shows how each handles this load on this machine; it is not a ranking.
"""

import asyncio
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import kit  # noqa: F401  (makes the tests' servers importable)
from drumbeat.bench.model import DriveRequest
from drumbeat.bench.worker.drive import drive_url, prepare_url
from drumbeat.core.clock import SystemClock
from kit.report import Report, parser, print_table, say
from servers.mariadb import MariaDbServer
from servers.postgres import PostgresServer

SCALE = 0.1
CONNECTIONS = 8


def addresses(stack: ExitStack) -> Mapping[str, str]:
    """Return the URL of an empty database of each kind."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    found = {"PostgreSQL": stack.enter_context(PostgresServer()).new_database()}
    try:
        found["MariaDB"] = stack.enter_context(MariaDbServer()).new_database()
    except Exception as exc:
        say(f"skipping MariaDB: {exc}")
    return found | {"SQLite": f"sqlite:///{folder}/target.db", "DuckDB": f"duckdb:///{folder}/target.duckdb"}


async def measure(url: str, request: DriveRequest) -> Mapping[str, Any]:
    await prepare_url(url, request.workload, request.scale, fresh=False, on_progress=lambda *_: None)
    return (await drive_url(url, request, SystemClock(), lambda _: None)).figures


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--workload", default="mixed")
    chosen = options.parse_args()
    seconds = 3 if chosen.quick else 15
    report = Report("engines")
    report.note_versions(["asyncmy", "duckdb", "numpy"])
    with ExitStack() as stack:
        for name, url in addresses(stack).items():
            request = DriveRequest(
                workload=chosen.workload, scale=SCALE, connections=CONNECTIONS, duration=timedelta(seconds=seconds)
            )
            found = asyncio.run(measure(url, request))
            kept = ("throughput", "errors", "p50_ms", "p95_ms", "p99_ms", "client_cpu_us_per_op")
            report.figures[name] = {key: found[key] for key in kept}
    print_table(
        ["engine", "ops/s", "errors", "p50 ms", "p95 ms", "p99 ms", "client µs/op"],
        [[name, *figures.values()] for name, figures in report.figures.items()],
    )
    first = report.figures["PostgreSQL"]["throughput"]
    report.ratios = {f"throughput, {name} / PostgreSQL": each["throughput"] / first for name, each in report.figures.items()}
    if chosen.plot:
        plot(report, chosen.plot)
    report.print()


def plot(report: Report, file: Path) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5))
    names = list(report.figures)
    left.bar(names, [report.figures[name]["throughput"] for name in names], color="#4477aa")
    left.set(title="operations a second", yscale="log")
    right.bar(names, [report.figures[name]["p99_ms"] for name in names], color="#ee6677")
    right.set(title="p99, ms", yscale="log")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
