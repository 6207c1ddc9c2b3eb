"""Rounds of kill -9: workers are killed and frozen at random moments while they work, and others take their place.

Real workers with short leases, of three pools in one store whose workers have equal ids. In a round jobs are pushed to each
(of a hundred ten fail once, four always, one kills its worker); then, after a random moment, a worker is killed or, one time
in four, frozen for longer than its lease and thawed while others have its jobs. At the end every job must be done exactly
once, by the claim that held it last, or poisoned at its limit; what jobs say of their attempts must be what their attempts
say; no job of one pool may be held or ended on account of another's worker; no late result may have been accepted, and one is
brought on purpose. In memory a worker is a task: killed, its line to the store is cut wherever it waits and the task
cancelled. With --unfenced claims have no number: the judge must see it.

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
from drumbeat.core.pool import PoolId
from drumbeat.store import open_store
from kit.report import Report, parser, print_table, say
from kit.soak import Soak, soaking, thresholds
from servers.postgres import PostgresServer
from servers.redis import RedisServer

STORES = ("memory", "sqlite", "postgresql", "redis")
POOLS = ("soak", "soak-b", "soak-c")
WORKERS, JOBS = 2, 5  #: of each pool
LEASE = 0.9  #: seconds
_LIMITS = thresholds(heartbeat=0.4, lost=20)  #: seconds; on a busy machine SQLite may keep a worker waiting
_TRIES = 5  #: to get one late result accepted, without fencing
_REAP_EVERY = 5  #: rounds; in between workers take back what has expired


class Frozen:
    """Who is frozen. Each thaws by itself, whatever the soak waits for: on SQLite it may have the lock that others need."""

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


async def one_round(soaks: Sequence[Soak], frozen: Mapping[PoolId, Frozen]) -> str:
    """Push to all pools, wait a moment, strike in one of them; what was done."""
    chance = soaks[0].chance
    for soak in soaks:
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


async def rounds(url: str, folder: Path, count: int, seed: int, *, fenced: bool) -> dict[str, Any]:
    """All rounds on one store, and the verdict on all its pools together."""
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
            struck.append(await one_round(soaks, frozen))
            if n % _REAP_EVERY == _REAP_EVERY - 1:
                await asyncio.gather(*(soak.reap() for soak in soaks))
                say(f"  {n + 1} rounds")
        await asyncio.gather(*(soak.finished() for soak in soaks))
        verdict = together([await soak.verdict() for soak in soaks])
    kills = {"rounds": count, "kills": struck.count("kill"), "freezes": struck.count("freeze")}
    return {**kills, **verdict, "seconds": round(time.monotonic() - began, 1)}


def together(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The pools' verdicts as one: figures added, faults one after the other."""
    faults = [fault for each in verdicts for fault in each["faults"]]
    sums = {name: sum(each[name] for each in verdicts) for name in verdicts[0] if name != "faults"}
    return {**sums, "foreign": sum("foreign" in fault for fault in faults), "faults": faults}


@contextmanager
def place(store: str, folder: Path) -> Iterator[str]:
    """An empty store of a kind."""
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
    options.add_argument("--url", help="the one store, empty, in place of one made for the purpose")
    options.add_argument("--rounds", type=int, help="200; with --quick 6")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--unfenced", action="store_true", help="take late results: the judge must find them")
    chosen = options.parse_args()
    count = chosen.rounds or (6 if chosen.quick else 200)
    report = Report("kill_rounds")
    for store in chosen.stores:
        say(f"{store}: {count} rounds")
        folder = Path(tempfile.mkdtemp(prefix="drumbeat-soak-"))
        with place(store, folder) as made:
            url = chosen.url or made
            report.figures[store] = asyncio.run(rounds(url, folder, count, chosen.seed, fenced=not chosen.unfenced))
        shutil.rmtree(folder, ignore_errors=True)
    finish(report)


def finish(report: Report) -> None:
    """Print all of it; exit code 1 if there were faults."""
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
