"""Kill the store's server (kill -9) and restart it, repeatedly, while workers run and jobs are pushed.

The workers are real and are not restarted. At the end every acknowledged job must exist, either done exactly once by its last
claim or poisoned at its limit, and no acknowledged result may be lost. For this, Redis needs appendonly yes and appendfsync
always, which this script sets; PostgreSQL has its default settings.

python benchmarks/server_restarts.py --stores redis --restarts 50
"""

import asyncio
import logging
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import kit  # noqa: F401
from kill_rounds import finish
from kit.report import Report, parser, say
from kit.soak import Soak, soaking, thresholds
from servers.postgres import PostgresServer
from servers.redis import DURABLE, RedisServer

STORES = ("postgresql", "redis")
WORKERS, JOBS = 3, 10
LEASE = 6.0  #: seconds: longer than a restart takes
_LIMITS = thresholds(heartbeat=1, lost=30)

Server = PostgresServer | RedisServer


async def one_restart(soak: Soak, server: Server) -> None:
    """Kill and restart the server at a random moment; pushes continue all the time."""
    enough = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(_push_until(soak, enough))
        await asyncio.sleep(soak.chance.uniform(0.3, 1.2))
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(soak.chance.uniform(0, 0.5))
        await asyncio.to_thread(server.start)
        await asyncio.sleep(soak.chance.uniform(0.1, 0.5))
        enough.set()


async def _push_until(soak: Soak, enough: asyncio.Event) -> None:
    while not enough.is_set():
        await soak.push(JOBS, deadly=0, max_crashes=20)
        await asyncio.sleep(0.1)


async def restarts(server: Server, url: str, folder: Path, count: int, seed: int) -> dict[str, Any]:
    """Run all restarts of one server; returns the figures and the faults."""
    began = time.monotonic()
    async with soaking(url, folder, _LIMITS, LEASE, WORKERS, seed) as soak:
        for n in range(count):
            await one_restart(soak, server)
            await soak.fill()
            if n % 10 == 9:
                say(f"  {n + 1} restarts")
        await soak.finished()
        verdict = await soak.verdict()
        dead = soak.started - WORKERS
    return {"restarts": count, "workers replaced": dead, **verdict, "seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--stores", nargs="*", choices=STORES, default=list(STORES))
    options.add_argument("--restarts", type=int, help="default 30; with --quick 3")
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    count = chosen.restarts or (3 if chosen.quick else 30)
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)  # failed connections are expected here
    report = Report("server_restarts")
    for store in chosen.stores:
        say(f"{store}: {count} restarts")
        folder = Path(tempfile.mkdtemp(prefix="drumbeat-soak-"))
        made: Server = PostgresServer() if store == "postgresql" else RedisServer(settings=DURABLE)
        with made as server:
            url = f"{server.new_database()}{'?connections=3' if store == 'postgresql' else ''}"
            report.figures[store] = asyncio.run(restarts(server, url, folder, count, chosen.seed))
        shutil.rmtree(folder, ignore_errors=True)
    finish(report)


if __name__ == "__main__":
    main()
