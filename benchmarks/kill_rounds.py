"""Kill (kill -9) or pause workers at random moments while they run jobs, and replace them.

Three pools in one store have real workers with short leases and the same ids. In each round, jobs are pushed to each pool: of a
hundred jobs, ten fail once, four always fail, and one kills its worker. After a random delay a worker is killed. One time in
four it is instead paused for longer than its lease, and resumed while other workers have its jobs.

At the end every job must be done exactly once, by its last claim, or poisoned at its limit; jobs and their recorded attempts
must agree; no job may be affected by another pool's worker. The test provokes a late result, which the store must refuse. On
the memory store a worker is a task: killing it cuts its connection to the store and cancels the task.

With --unfenced late results are accepted, and the check must detect that. With --workflows each pool gets a workflow of 50 jobs
in each round, which begins after that of the pool before. Then no job may begin before its parents have ended; each callback
must be done once or poisoned at its limit, like any other job; and no durable step may run again after it has finished.

python benchmarks/kill_rounds.py --stores postgresql --rounds 200
"""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import kit  # noqa: F401
from drumbeat.core.job import JobId
from drumbeat.core.pool import PoolId
from drumbeat.store import open_store
from kit.report import Report, parser, print_table, say
from kit.soak import PATIENCE, Soak, soaking, thresholds
from servers.postgres import PostgresServer
from servers.redis import RedisServer

STORES = ("memory", "sqlite", "postgresql", "redis")
POOLS = ("soak", "soak-b", "soak-c")
WORKERS, JOBS = 2, 5  #: of each pool
LEASE = 0.9  #: seconds
_LIMITS = thresholds(heartbeat=0.4, lost=20)  #: seconds; on a busy machine a worker may wait long for SQLite
_TRIES = 5  #: attempts to provoke a late result, without fencing
_REAP_EVERY = 5  #: rounds between two calls of reap; in between, workers take over expired jobs themselves


class Frozen:
    """The paused workers. Each is resumed by a timer, because on SQLite it may hold the lock that others wait for."""

    def __init__(self, soak: Soak) -> None:
        self._soak = soak
        self.names: set[str] = set()

    def freeze(self, name: str) -> None:
        self.names.add(name)
        self._soak.crew.freeze(name)
        asyncio.get_running_loop().call_later(self._soak.chance.uniform(2.2, 3.5) * LEASE, self._thaw, name)

    def _thaw(self, name: str) -> None:
        self.names.discard(name)
        self._soak.crew.thaw(name)


async def one_round(soaks: Sequence[Soak], frozen: Mapping[PoolId, Frozen], *, workflows: bool) -> str:
    """Push jobs to all pools, wait a moment, then kill or pause a worker of one pool. Returns ``kill`` or ``freeze``."""
    chance = soaks[0].chance
    before: list[JobId] = []
    for soak in soaks:
        if workflows:
            before = [await soak.push_workflow(before)]
        else:
            await soak.push(JOBS)
    await asyncio.sleep(chance.uniform(0, 0.3))
    struck = chance.choice(soaks)
    cold = frozen[struck.pool_id]
    awake = [name for name in struck.crew.alive if name not in cold.names]
    what = "freeze" if chance.random() < 0.25 and len(awake) > 1 else "kill"
    if awake:
        victim = chance.choice(awake)
        if what == "freeze":
            cold.freeze(victim)
        else:
            await struck.crew.kill(victim)
    for soak in soaks:
        await soak.fill()
    return what


async def rounds(url: str, folder: Path, count: int, seed: int, *, fenced: bool, workflows: bool = False) -> dict[str, Any]:
    """Run all rounds on one store; returns the figures and faults of all its pools."""
    began, struck = time.monotonic(), []
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(url, create=True))
        soaks = [
            await stack.enter_async_context(
                soaking(url, folder, _LIMITS, LEASE, WORKERS, seed + n, fenced=fenced, name=name, within=store)
            )
            for n, name in enumerate(POOLS)
        ]
        frozen = {soak.pool_id: Frozen(soak) for soak in soaks}
        for _ in range(1 if fenced else _TRIES):
            if await soaks[0].bring_late_result():
                break
        for n in range(count):
            struck.append(await one_round(soaks, frozen, workflows=workflows))
            if n % _REAP_EVERY == _REAP_EVERY - 1:
                await asyncio.gather(*(soak.reap() for soak in soaks))
                say(f"  {n + 1} rounds")
        await asyncio.gather(*(soak.finished(PATIENCE * (10 if workflows else 1)) for soak in soaks))
        verdict = together([await soak.verdict() for soak in soaks])
    kills = {"rounds": count, "kills": struck.count("kill"), "freezes": struck.count("freeze")}
    return {**kills, **verdict, "seconds": round(time.monotonic() - began, 1)}


def together(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine the results of several pools: figures added, faults concatenated."""
    faults = [fault for each in verdicts for fault in each["faults"]]
    sums = {name: sum(each[name] for each in verdicts) for name in verdicts[0] if name != "faults"}
    return {**sums, "foreign": sum("foreign" in fault for fault in faults), "faults": faults}


@contextmanager
def place(store: str, folder: Path) -> Iterator[str]:
    """Yield the URL of an empty store."""
    if store == "memory":
        yield "memory:"
    elif store == "sqlite":
        yield f"sqlite:///{folder}/soak.db?busy_timeout=60"
    elif store == "postgresql":
        with PostgresServer() as postgres:
            yield f"{postgres.new_database()}?connections=3"
    else:
        with RedisServer() as redis:
            yield redis.new_database()


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--stores", nargs="*", choices=STORES, default=list(STORES))
    options.add_argument("--url", help="use this empty store instead of a temporary one")
    options.add_argument("--rounds", type=int, help="default 200; with --quick 6")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--unfenced", action="store_true", help="accept late results: the check must detect them")
    options.add_argument("--workflows", action="store_true", help="push workflows of 50 jobs instead of single jobs")
    chosen = options.parse_args()
    count = chosen.rounds or (6 if chosen.quick else 200)
    report = Report("kill_rounds")
    for store in chosen.stores:
        say(f"{store}: {count} rounds")
        folder = Path(tempfile.mkdtemp(prefix="drumbeat-soak-"))
        with place(store, folder) as made:
            url = chosen.url or made
            work = rounds(url, folder, count, chosen.seed, fenced=not chosen.unfenced, workflows=chosen.workflows)
            report.figures[store] = asyncio.run(work)
        shutil.rmtree(folder, ignore_errors=True)
    finish(report)


def finish(report: Report) -> None:
    """Print the report; exit with 1 if there were faults."""
    names = [name for name in next(iter(report.figures.values())) if name != "faults"]
    print_table(["", *report.figures], [[name, *(each[name] for each in report.figures.values())] for name in names])
    found = {store: each["faults"] for store, each in report.figures.items() if each["faults"]}
    for store, each in found.items():
        say(f"{store}: {len(each)} faults, such as: {each[0]}")
    report.print()
    if found:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
