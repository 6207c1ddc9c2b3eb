"""A real worker for soak tests: python -m kit.soak_worker URL POOL NAME JOURNAL [unfenced], or a task of the test itself.

It appends each start of its handler, and the store's answer to each result, to a journal: one line per write, so that kill -9
never leaves half a line.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import SystemClock
from drumbeat.core.job import JobOutcome, JobStatus, Token
from drumbeat.core.worker import Holder
from drumbeat.pool.worker.context import JobContext
from drumbeat.pool.worker.durable import step
from drumbeat.pool.worker.handlers import describe
from drumbeat.pool.worker.options import Mode, plan_of
from drumbeat.settings import Settings
from drumbeat.store import Store, open_store
from drumbeat.store.interface import ClaimRequest, Queue, RenewResult, SettleResult

UNFENCED = "unfenced"


class Journal:
    """A file that many processes append to."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def note(self, what: str, token: Token, **more: Any) -> None:
        line = {"what": what, "job": token.job_id, "epoch": token.epoch, **more}
        with self._file.open("ab", buffering=0) as end:
            end.write((json.dumps(line) + "\n").encode())

    def lines(self) -> Iterator[Mapping[str, Any]]:
        if self._file.exists():
            yield from (json.loads(line) for line in self._file.read_text().splitlines())


class WatchedQueue:
    """A queue that journals whether each result was accepted or refused, if the answer arrived."""

    def __init__(self, queue: Queue, journal: Journal) -> None:
        self._queue = queue
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def settle(
        self, holder: Holder, outcomes: Sequence[JobOutcome], claiming: ClaimRequest | None = None
    ) -> SettleResult:
        settled = await self._queue.settle(holder, outcomes, claiming)
        for verdict in outcomes:
            what = "refused" if verdict.token in settled.stale else "accepted"
            self._journal.note(what, verdict.token, outcome=verdict.outcome)
        return settled


class UnfencedQueue:
    """A queue without fencing: it accepts any worker's result as the current holder's. The check must detect that."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store.queue, name)

    async def settle(
        self, holder: Holder, outcomes: Sequence[JobOutcome], claiming: ClaimRequest | None = None
    ) -> SettleResult:
        for verdict in outcomes:
            job = await self._store.jobs.get(verdict.token.job_id)
            if job.status is JobStatus.CLAIMED and job.holder is not None:
                await self._store.queue.settle(job.holder, [verdict._replace(token=job.token)])
        return SettleResult(stale=(), claimed=tuple(await self._store.queue.claim(claiming)) if claiming else ())

    async def renew(self, holder: Holder, tokens: Sequence[Token], lease: timedelta) -> RenewResult:
        await self._store.queue.renew(holder, tokens, lease)
        return RenewResult(stale=(), cancelled=())


class WatchedStore:
    """A store whose queue is replaced by another one."""

    def __init__(self, store: Store, queue: object) -> None:
        self._store = store
        self.queue = queue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def watched(store: Store, journal: Journal, *, fenced: bool = True) -> Store:
    queue = store.queue if fenced else cast(Queue, UnfencedQueue(store))
    return cast(Store, WatchedStore(store, WatchedQueue(queue, journal)))


async def live(
    store: Store,
    pool: str,
    name: str,
    journal: Journal,
    die: Callable[[], Awaitable[None]],
    folder: Path,
    *,
    signals: bool = True,
) -> None:
    """Run a worker until it is told to stop. ``die`` is called by jobs that kill their worker."""

    async def work(payload: dict[str, Any], context: JobContext) -> dict[str, Any]:
        journal.note("began", context.job.token, worker=name)
        steps = range(payload.get("steps", 0))
        for number in steps[: len(steps) // 2]:
            await take_step(number, context)
        await _until(payload, context)
        for number in steps[len(steps) // 2 :]:
            await take_step(number, context)
        if payload["fate"] == "die":
            await die()
        if payload["fate"] == "fail" or (payload["fate"] == "stumble" and context.attempt == 1):
            raise ValueError("the job was told to fail")
        return {"epoch": context.job.lease_epoch, "worker": name}

    async def take_step(number: int, context: JobContext) -> None:
        await step(begin_step, number, context.job.token)
        journal.note("step finished", context.job.token, step=number)

    async def begin_step(number: int, token: Token) -> None:
        journal.note("step began", token, step=number)

    plane = ControlPlane(Settings(state_dir=folder), store, SystemClock())
    plan = replace(plan_of(await plane.pool(pool).get()), mode=Mode.LOOP)
    await plane.work(pool, plan, name, handlers={"": describe(work)}, signals=signals)


async def _until(payload: Mapping[str, Any], context: JobContext) -> None:
    """Sleep for the time in the job's payload. If the payload names a gate, also wait for a file that opens it, for this
    claim or for all claims."""
    await asyncio.sleep(payload["seconds"])
    gate = payload.get("gate")
    while gate is not None and not any(Path(f"{gate}-{whose}").exists() for whose in (context.job.lease_epoch, "all")):
        await asyncio.sleep(0.01)


async def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def _main(url: str, pool: str, name: str, file: str, *more: str) -> None:
    async with open_store(url) as store:
        print("ready", flush=True)
        journal = Journal(Path(file))
        await live(watched(store, journal, fenced=UNFENCED not in more), pool, name, journal, _die, Path(file).parent)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
