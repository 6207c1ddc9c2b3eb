"""For your tests: a pool in memory whose jobs run one at a time, in order, and an immediate mode for tasks.

``async with pool() as papers: await papers.push({"id": 1}); ran = await papers.run_until_empty(summarise)``
``with immediate(): assert add.push(1, 2).result() == 3``
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from drumbeat.core.clock import ManualClock
from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import LONGEST_WAIT, AttemptOutcome, Job, JobId, JobOutcome, JobStatus
from drumbeat.core.job_step import JobStep, NewStep
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.pool.job_options import new_job
from drumbeat.pool.model import paused_types
from drumbeat.pool.own_transaction import stale_write
from drumbeat.pool.paused_types import claimable_types
from drumbeat.pool.plugins import NO_PLUGINS, PoolPlugins
from drumbeat.pool.schedules.tick_pusher import TickPusher
from drumbeat.pool.service import FOREVER, Pool
from drumbeat.pool.worker.attempt import AttemptRunner
from drumbeat.pool.worker.context import JobContext
from drumbeat.pool.worker.handlers import Handler, handlers_of
from drumbeat.pool.worker.in_flight import InFlightJob
from drumbeat.pool.worker.suspension import JobSuspended
from drumbeat.store.interface import ClaimRequest, Store
from drumbeat.store.memory import MemoryStore
from drumbeat.tasks.handler_queue import pushing_to
from drumbeat.tasks.immediate import ImmediateQueue
from drumbeat.tasks.queue import queues
from drumbeat.tasks.task import BoundCall

__all__ = ["ManualClock", "Ran", "TestPool", "immediate", "pool"]

Function = Callable[..., Any]
_WORKER = WorkerId("test-worker")
_LEASE = timedelta(days=365)
_PAGE = 10_000  #: jobs per read
_ENDLESS = LONGEST_WAIT / 2  #: a job delayed for longer than this is taken to wait for an event without a timeout


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One attempt at a job that ``run_until_empty`` made: the job, its outcome, and its result or error."""

    job: Job  #: the job as it was when claimed
    outcome: AttemptOutcome
    result: Any = None
    error: str | None = None


@asynccontextmanager
async def pool(
    name: str = "test", clock: ManualClock | None = None, middleware: Sequence[object] = ()
) -> AsyncIterator["TestPool"]:
    """Create a pool in memory for the block. Its ``clock`` moves only when the test or ``run_until_empty`` moves it.
    ``middleware``: objects with hooks around pushes and attempts."""
    time = clock or ManualClock()
    test_pool = TestPool(MemoryStore(time), time, name, NO_PLUGINS.with_middleware(middleware))
    await test_pool.create()
    yield test_pool


@contextmanager
def immediate(*, raise_errors: bool = False) -> Iterator[ImmediateQueue]:
    """During the block, a task that is pushed runs at once in this process, without a store. Yields the queue; its ``jobs``
    are the jobs that ran. A task that fails is tried again at once; in the end, ``result`` raises JobEnded with its error.

    With ``raise_errors``, it is not tried again, and the push raises the task's own error. Delays, timeouts, unique keys and
    limits are ignored.
    """
    before, queue = queues.replacement, ImmediateQueue(raise_errors=raise_errors)
    queues.replacement = queue
    try:
        yield queue
    finally:
        queues.replacement = before


class TestPool(Pool):
    """A pool for tests: the test runs its jobs with ``run_until_empty``, without a worker process."""

    __test__ = False  #: keeps pytest from collecting this class

    def __init__(self, store: Store, clock: ManualClock, name: str, plugins: PoolPlugins = NO_PLUGINS) -> None:
        super().__init__(store, clock, name, "test", plugins=plugins)
        self.store = store
        self.clock = clock

    async def push(self, payload: Any, **options: Any) -> JobId:
        """Push one job, like ``Pool.push``. A bound call of a task, such as ``send.bind("a@x")``, is pushed with the options of
        the task; ``options`` override them."""
        if not isinstance(payload, BoundCall):
            return await super().push(payload, **options)
        job = payload.new_job()
        given = new_job(None, **{"group": job.group, "after": job.after, **options})
        return (await self.push_jobs([replace(job, **{name: getattr(given, name) for name in options})]))[0]

    async def push_due(self) -> None:
        """Push the jobs of the pool's schedules that are due by the clock of this pool, as workers do."""
        await TickPusher(self.store, self.clock, "test", lambda: self._plugins).push_due(await self.get())

    async def run_until_empty(
        self,
        handler: "Function | str | Mapping[str, Function | str]",
        *,
        capabilities: tuple[str, ...] = (),
        most: int = 10_000,
    ) -> list[Ran]:
        """Run jobs one at a time, in order, until no job can be run any more. Returns every attempt.

        The clock is moved past everything that delays a job: a delay, a retry, a group's rate limit, a pause with an end.
        Tasks that a handler pushes go to the store of this pool, each to its own pool.
        Jobs stay if they can never be claimed: if the pool is paused without an end, if their type is paused or no handler
        takes it, if they need a capability that is not in ``capabilities``, or if they wait for an event without a timeout.
        The clock stands still while a handler runs, so a job times out only if its handler moves the clock.
        Raises InvalidInput if jobs are left after ``most`` attempts.
        """
        attempts = AttemptRunner(
            handlers=handlers_of(handler),
            executor=_Inline(),
            clock=self.clock,
            chance=lambda: 0.5,
            read_parents=self._parents,
            steps=_Steps(self.store, self.clock, self._holder(_WORKER)),
            plugins=self._plugins,
        )
        ran: list[Ran] = []
        while (job := await self._next(attempts, capabilities)) is not None:
            if len(ran) >= most:
                raise InvalidInput(
                    f"the pool still has jobs after {most} attempts; check whether handlers push new jobs, or increase most"
                )
            ran.append(await self._run(attempts, job))
        return ran

    async def _parents(self, job_id: JobId) -> Sequence[Job]:
        return await self.store.jobs.parents(job_id)

    async def _run(self, attempts: AttemptRunner, job: Job) -> Ran:
        held = InFlightJob(job=job, token=job.token, claimed=self.clock.elapsed())
        with pushing_to(self.store, self._pool):
            verdict = await attempts.run(held)
        await self.store.queue.settle(self._holder(_WORKER), [verdict])
        return _ran(job, verdict)

    def _pool(self, name: str) -> Pool:
        """Return another pool of the same store, for tasks that a handler pushes."""
        return Pool(self.store, self.clock, name, "test", plugins=self._plugins)

    async def _next(self, attempts: AttemptRunner, capabilities: tuple[str, ...]) -> Job | None:
        """Claim the next job; if none is ready, move the clock until one is. Returns None if no job can ever be claimed."""
        claiming = ClaimRequest(
            pool_id=self.pool_id, holder=self._holder(_WORKER), lease=_LEASE, alone=True, capabilities=capabilities
        )
        handled = () if "" in attempts.handlers else tuple(attempts.handlers)
        waited = timedelta()
        while True:
            types = claimable_types(handled, paused_types((await self.get()).policy))
            if types is not None and (claimed := await self.store.queue.claim(replace(claiming, **types._asdict()))):
                return claimed[0]
            if (wait := await self._wait(waited)) is None:
                return None
            waited += wait
            await self.clock.advance(wait)

    async def _wait(self, waited: timedelta) -> timedelta | None:
        """Return how far to move the clock until a job might be claimable; None if no job will ever be claimable.

        ``waited`` is how far the clock was moved since the last claim; it limits the wait for a group's rate limit.
        """
        now, row = self.clock.now(), await self.get()
        if row.paused_until is not None and row.paused_until > now:
            return row.paused_until - now if row.paused_until < FOREVER else None
        paused = paused_types(row.policy)
        pending = [job for job in await self._pending() if job.type not in paused]
        waits = [job.not_before - now for job in pending if job.not_before is not None and job.not_before > now]
        waits = [wait for wait in waits if wait < _ENDLESS]
        rates = {job.group_rate for job in pending if job.group_rate is not None}
        waits += [rate.per / rate.count for rate in rates if waited < rate.per * 2]
        return min(waits, default=None)

    async def _pending(self) -> list[Job]:
        """Return all pending jobs, read page by page."""
        pending: list[Job] = []
        while True:
            after = pending[-1].job_id if pending else None
            page = await self.store.jobs.list(self.pool_id, statuses=[JobStatus.PENDING], after=after, limit=_PAGE)
            pending += page
            if len(page) < _PAGE:
                return pending


class _Inline:
    """Runs handlers in the asyncio task of the test, one at a time."""

    lingering = 0

    def __init__(self) -> None:
        self.on_free: Callable[[], None] = lambda: None

    async def prepare(self, handler: Handler) -> None:
        """Do nothing: the test has imported the handler."""

    async def run(self, handler: Handler, context: JobContext) -> Any:
        context.main = asyncio.current_task()
        try:
            result = handler.invoke(context)
            return await result if handler.is_async else result
        except Exception:
            raise
        except (SystemExit, KeyboardInterrupt, JobSuspended, BaseExceptionGroup) as exc:
            raise RuntimeError(f"the handler raised {type(exc).__name__}: {exc}") from exc

    async def run_in_thread(self, function: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(function)

    async def close(self) -> None:
        await asyncio.sleep(0)


class _Steps:
    """Reads and records the durable steps of jobs, with one write for each step; a sleep only moves the clock."""

    def __init__(self, store: Store, clock: ManualClock, holder: Holder) -> None:
        self._store = store
        self._clock = clock
        self._holder = holder

    async def read(self, job_id: JobId) -> Sequence[JobStep]:
        return await self._store.job_steps.list(job_id)

    async def write(self, new: NewStep) -> None:
        if await self._store.job_steps.record(self._holder, [new]):
            raise stale_write(new.token)

    async def sleep(self, duration: timedelta) -> None:
        await self._clock.advance(duration)


def _ran(job: Job, verdict: JobOutcome) -> Ran:
    return Ran(job=job, outcome=verdict.outcome, result=verdict.result, error=verdict.error)
