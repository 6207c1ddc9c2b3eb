"""For users' tests: a pool in memory, and a worker that does its jobs one by one, in order, on a clock that a test moves.

``async with pool() as papers: await papers.push({"id": 1}); ran = await papers.run_until_empty(summarise)``
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import AttemptOutcome, Job, JobOutcome, JobStatus
from drumbeat.core.worker import WorkerId
from drumbeat.pool.service import FOREVER, Pool
from drumbeat.pool.worker.attempt import AttemptRunner, InFlightJob
from drumbeat.pool.worker.context import JobContext
from drumbeat.pool.worker.handlers import Handler, describe, load
from drumbeat.store.interface import Claiming, Store
from drumbeat.store.memory import MemoryStore

__all__ = ["ManualClock", "Ran", "TestPool", "pool"]

Function = Callable[..., Any]
_WORKER = WorkerId("test-worker")
_LEASE = timedelta(days=365)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One attempt the worker made."""

    job: Job  #: as it was claimed
    outcome: AttemptOutcome
    result: Any = None
    error: str | None = None


@asynccontextmanager
async def pool(name: str = "test", clock: ManualClock | None = None) -> AsyncIterator["TestPool"]:
    """A pool in memory. Its ``clock`` moves only when a test, or ``run_until_empty``, moves it."""
    time = clock or ManualClock()
    made = TestPool(MemoryStore(time), time, name)
    await made.create()
    yield made


class TestPool(Pool):
    """A pool whose jobs are done by the test itself."""

    __test__ = False  #: pytest must not take it for a class of tests

    def __init__(self, store: Store, clock: ManualClock, name: str) -> None:
        super().__init__(store, clock, name, "test")
        self.store = store
        self.clock = clock

    async def run_until_empty(
        self,
        handler: "Function | str | Mapping[str, Function | str]",
        *,
        capabilities: tuple[str, ...] = (),
        most: int = 10_000,
    ) -> list[Ran]:
        """Do jobs one at a time, in order, moving the clock on to whatever holds one up: a delay, a retry, a group's rate, a
        pause that ends; until none is left to do.

        What cannot be claimed at all (a pool paused for good, a capability nobody has) is left. A job's ``timeout`` goes by
        the same clock, which stands still while a handler runs. Raises InvalidInput after ``most``.
        """
        attempts = AttemptRunner(handlers=_handlers(handler), executor=_Inline(), clock=self.clock, chance=lambda: 0.5)
        ran: list[Ran] = []
        while (job := await self._next(attempts, capabilities)) is not None:
            if len(ran) >= most:
                raise InvalidInput(f"expected the pool to be empty after {most} attempts, got another; do jobs push jobs?")
            ran.append(await self._run(attempts, job))
        return ran

    async def _run(self, attempts: AttemptRunner, job: Job) -> Ran:
        verdict = await attempts.verdict(InFlightJob(job=job, token=job.token))
        await self.store.queue.settle(self._holder(_WORKER), [verdict])
        return _ran(job, verdict)

    async def _next(self, attempts: AttemptRunner, capabilities: tuple[str, ...]) -> Job | None:
        """The next job, after as long a wait as it takes for one to come due."""
        types = () if "" in attempts.handlers else tuple(attempts.handlers)
        asked = Claiming(
            pool_id=self.pool_id, holder=self._holder(_WORKER), lease=_LEASE, alone=True, capabilities=capabilities, types=types
        )
        waited = timedelta()
        while True:
            if claimed := await self.store.queue.claim(asked):
                return claimed[0]
            if (wait := await self._wait(waited)) is None:
                return None
            waited += wait
            await self.clock.advance(wait)

    async def _wait(self, waited: timedelta) -> timedelta | None:
        """How long until something may have changed, if anything will by itself."""
        now = self.clock.now()
        home = await self.store.pools.get(self.pool_id)
        if home.paused_until is not None and home.paused_until > now:
            return home.paused_until - now if home.paused_until < FOREVER else None
        pending = await self.store.jobs.list(self.pool_id, statuses=[JobStatus.PENDING], limit=10_000)
        waits = [job.not_before - now for job in pending if job.not_before is not None and job.not_before > now]
        rates = {job.group_rate for job in pending if job.group_rate is not None}
        waits += [rate.per / rate.count for rate in rates if waited < rate.per * 2]
        return min(waits, default=None)


class _Inline:
    """Handlers where the test is, one at a time."""

    lingering = 0

    def __init__(self) -> None:
        self.on_free: Callable[[], None] = lambda: None

    async def run(self, handler: Handler, context: JobContext) -> Any:
        try:
            result = handler.invoke(context)
            return await result if handler.is_async else result
        except (SystemExit, KeyboardInterrupt) as exc:
            raise RuntimeError(f"the handler raised {type(exc).__name__}: {exc}") from exc

    async def close(self) -> None:
        await asyncio.sleep(0)


def _handlers(given: "Function | str | Mapping[str, Function | str]") -> dict[str, Handler]:
    found = given if isinstance(given, Mapping) else {"": given}
    return {kind: load(each) if isinstance(each, str) else describe(each) for kind, each in found.items()}


def _ran(job: Job, verdict: JobOutcome) -> Ran:
    return Ran(job=job, outcome=verdict.outcome, result=verdict.result, error=verdict.error)
