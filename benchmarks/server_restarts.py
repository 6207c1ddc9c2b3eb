"""The server of the store is killed (kill -9) and started again, over and over, while workers work and jobs are pushed.

Real workers; nobody restarts them. At the end whatever was pushed and answered must be there, done exactly once by the claim
that held it last or poisoned at its limit, and no result that was answered may be undone. Redis keeps this promise only with
appendonly yes and appendfsync always, which it is given here; PostgreSQL as it comes.

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
    """Work, then a power cut in the middle of it; pushes go on all the while."""
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
    """All restarts of one server, and the verdict."""
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
    options.add_argument("--restarts", type=int, help="30; with --quick 3")
    options.add_argument("--seed", type=int, default=1)
    chosen = options.parse_args()
    count = chosen.restarts or (3 if chosen.quick else 30)
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)  # that it cannot connect meanwhile is no news
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
