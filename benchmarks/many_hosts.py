"""Hold 5,000 connections to one PostgreSQL behind PgBouncer for a minute, with 10 workers on 5 hosts and the usual commands.

Each host is a network namespace of this machine with an SSH server; PostgreSQL, PgBouncer and the store are on a sixth. Root
and Linux are needed. PgBouncer is in session mode, because the driver prepares its statements.
"""

import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import kit  # noqa: F401  (makes the tests' servers importable)
from cli.given import drumbeat
from e2e.engine_site import Site, write_ssh_engine
from kit.report import Report, parser, print_table, say
from servers.hosts import HostNetwork, placed
from servers.openssh import OpenSshServer
from servers.pgbouncer import PgBouncer
from servers.postgres import PostgresServer

HOSTS, WORKERS = 5, 10
TEMPLATE = """
name: many-hosts
target: {{url: "{url}"}}
workload: {{standard: read-only, scale: 0.1}}
timing: {{warmup_seconds: 30, duration_seconds: {seconds}}}
scaling: {{mode: FIXED, min_workers: {workers}, min_connections: {each}}}
guardrails: {{enabled: false}}
"""


def run(folder: Path, each: int, seconds: int) -> Any:
    """Run the benchmark; returns what the command printed."""
    with ExitStack() as stack:
        first, *others = stack.enter_context(HostNetwork(HOSTS + 1)).hosts
        settings = {"shared_buffers": "64MB", "work_mem": "64kB"}
        many = WORKERS * each
        server = stack.enter_context(placed(PostgresServer(max_connections=many + 100, settings=settings), first))
        bouncer = stack.enter_context(PgBouncer(server, mode="session", pool_size=many + 20, clients=many + 50))
        servers = [stack.enter_context(placed(OpenSshServer(), host)) for host in others]
        write_ssh_engine(folder, servers, slots=2)
        site, target = Site(folder, server.new_database()), server.new_database()
        site.run("bench", "prepare", target, "--workload", "read-only", "--scale", "0.1")
        (folder / "run.yml").write_text(TEMPLATE.format(url=bouncer.url(target), workers=WORKERS, each=each, seconds=seconds))
        say(f"{WORKERS} workers with {each} connections each, on {HOSTS} hosts, for {seconds} s")
        done = drumbeat("bench", "run", "run.yml", "--engine", "cluster", "--json", cwd=folder, DRUMBEAT_STORE=site.store)
        if done.code not in (0, 4):
            raise RuntimeError(done.errors or done.output)
        return json.loads(done.output)


def main() -> int:
    chosen = parser(__doc__).parse_args()
    each, seconds = (20, 5) if chosen.quick else (500, 60)
    with tempfile.TemporaryDirectory(prefix="many-hosts-") as folder:
        found = run(Path(folder), each, seconds)
    measured = next(phase for phase in found["phases"] if phase["name"] == "MEASUREMENT")
    figures = {
        "connections": WORKERS * each,
        "held": sum(max(second["held"] for second in worker["series"]) for worker in found["workers"]),
        "failed_connects": sum(phase["failed_connects"] for phase in found["phases"]),
        "errors": sum(phase["errors"] for phase in found["phases"]),
        **{name: measured[name] for name in ("seconds", "operations", "qps", "p95_ms")},
    }
    print_table(["figure", "value"], [[name, value] for name, value in figures.items()])
    report = Report("many_hosts", figures=figures)
    report.note_versions(["asyncssh"])
    report.print()
    return bool(figures["failed_connects"] or figures["held"] < figures["connections"])


if __name__ == "__main__":
    sys.exit(main())
