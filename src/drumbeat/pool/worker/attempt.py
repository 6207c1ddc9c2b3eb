"""Runs one attempt at a job: calls its handler, stops it at the timeout, and returns the outcome."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.job import LONGEST_WAIT, AttemptOutcome, Job, JobId, JobOutcome, retry_delay
from drumbeat.core.job_step import JobStep
from drumbeat.core.plain import time_span
from drumbeat.pool.envelope import needs_envelope, open_envelope
from drumbeat.pool.middleware import AttemptCall, MiddlewareChain
from drumbeat.pool.plugins import NO_PLUGINS, PoolPlugins
from drumbeat.pool.worker.context import JobContext, ReadParents
from drumbeat.pool.worker.executors import Executor
from drumbeat.pool.worker.failures import HandlerFailure, failure
from drumbeat.pool.worker.handlers import Handler, Handlers, handler_for
from drumbeat.pool.worker.in_flight import InFlightJob
from drumbeat.pool.worker.log_context import CURRENT_JOB
from drumbeat.pool.worker.steps import AttemptSteps, StepStore
from drumbeat.pool.worker.suspension import error_beside_suspension
from drumbeat.runtime.timeouts import LostRace, race

log = logging.getLogger(__name__)

_IMPORTED_WITHIN = timedelta(minutes=5)  #: most time for a child process to start and import a handler

Begin = Callable[[InFlightJob], Awaitable[None]]
Confirm = Callable[[InFlightJob, JobOutcome], Awaitable[JobOutcome]]


class TakenAway(Exception):
    """Raised if a claimed job was taken from this worker before its handler was called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRunner:
    """Calls the handlers of jobs and returns outcomes: done, failed, timed out, suspended, cancelled or released."""

    handlers: Handlers
    executor: Executor
    clock: Clock
    chance: Callable[[], float]
    timeout: timedelta | None = None  #: time limit for jobs that have no timeout of their own
    read_parents: ReadParents | None = None  #: reads the jobs that a job waited for
    steps: StepStore | None = None  #: reads and records the steps of jobs
    plugins: PoolPlugins = NO_PLUGINS

    def run(
        self, held: InFlightJob, begin: Begin | None = None, confirm: Confirm | None = None
    ) -> Coroutine[Any, Any, JobOutcome]:
        """Run one attempt at a job and return the outcome. ``begin`` is called before the handler; if it raises TakenAway, the
        handler is not called. ``confirm`` is called after a handler that has called ``complete_on``, and returns the outcome.
        Raises CancelledError if the calling task is cancelled, and the errors of ``confirm``."""
        if self.plugins.middleware is None:
            return self._confirmed(held, begin, confirm)
        return self._with_hooks(held, begin, confirm, self.plugins.middleware)

    async def _confirmed(
        self,
        held: InFlightJob,
        begin: Begin | None,
        confirm: Confirm | None,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> JobOutcome:
        current = CURRENT_JOB.set(held.context)
        try:
            outcome = await self._verdict(held, begin, before)
        except Exception as exc:
            log.exception("failed to determine the outcome of job %s; it counts as failed", held.job.job_id)
            error = f"its outcome could not be determined: {type(exc).__name__}"
            outcome = JobOutcome(token=held.token, outcome=AttemptOutcome.FAILED, error=error, fatal=True)
        finally:
            CURRENT_JOB.reset(current)
        return outcome if confirm is None or not held.context.settles_itself else await confirm(held, outcome)

    async def _with_hooks(
        self, held: InFlightJob, begin: Begin | None, confirm: Confirm | None, middleware: MiddlewareChain
    ) -> JobOutcome:
        """Run an attempt with the hooks of middleware before and after the handler."""
        started: list[AttemptCall] = []

        async def before() -> None:
            call = AttemptCall(job=held.context.job, headers=dict(held.context.headers))
            held.context.headers = call.headers
            started.append(call)
            await middleware.call("before_attempt", call)

        outcome, current = None, CURRENT_JOB.set(held.context)
        try:
            try:
                outcome = await self._confirmed(held, begin, confirm, before)
            finally:
                for call in started:
                    call.outcome, call.exception = outcome, held.context.exception
                    await _unless_stopped(held, middleware.ended(call))
        finally:
            CURRENT_JOB.reset(current)
        return outcome

    async def _verdict(
        self,
        held: InFlightJob,
        begin: Begin | None,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> JobOutcome:
        job, token = held.job, held.token
        try:
            if begin is not None:
                await begin(held)
            if before is not None or needs_envelope(job.payload):
                await self._open(held, before)
            result = await self._result(held)
        except TakenAway:
            return JobOutcome(token=token, outcome=AttemptOutcome.RELEASED)
        except asyncio.CancelledError as exc:
            if held.stop_outcome is None:
                if held.task is not None and held.task.cancelling():
                    raise
                return self._failed(job, failure(exc))
            return JobOutcome(token=token, outcome=held.stop_outcome, error=_why(held.stop_outcome))
        except LostRace:
            limit = self._limit(job) or timedelta()
            error = f"took longer than {limit.total_seconds():g} s"
            held.context.exception = TimeoutError(error)
            return self._failed(job, HandlerFailure(error=error), AttemptOutcome.TIMED_OUT)
        except Exception as exc:
            if (suspended := _suspended(held)) is None:
                raised: BaseException = exc
            elif (beside := error_beside_suspension(exc)) is None:
                return suspended
            else:
                raised = beside
            log.info("the handler of job %s raised:", job.job_id, exc_info=raised)
            held.context.exception = raised
            return self._failed(job, failure(raised))
        return _suspended(held) or JobOutcome(token=token, outcome=AttemptOutcome.DONE, result=result)

    async def _open(self, held: InFlightJob, before: "Callable[[], Awaitable[None]] | None") -> None:
        """Set the context's headers and payload to what was pushed. Then call ``before``, even if they cannot be read."""
        try:
            held.context.headers = open_envelope(held.job.payload).headers
            held.context.job = await self.plugins.opened_payload(held.job)
        finally:
            if before is not None:
                await before()

    def _limit(self, job: Job) -> timedelta | None:
        limit = job.timeout if job.timeout is not None else self.timeout
        return None if limit is None or limit > LONGEST_WAIT else limit

    async def _parents(self, read: ReadParents, job_id: JobId) -> Sequence[Job]:
        return [await self.plugins.opened(parent) for parent in await read(job_id)]

    async def _result(self, held: InFlightJob) -> Any:
        handler = handler_for(self.handlers, held.job.type)
        if held.job.if_failed is not None and self.read_parents is not None:
            held.context.read_parents_by(partial(self._parents, self.read_parents), asyncio.get_running_loop())
            held.context.job = await self.plugins.with_results(held.context.job, self.read_parents)
        if self.plugins.large is not None:
            held.context.most_bytes = self.plugins.most_bytes
        if self.steps is not None:
            loop = asyncio.get_running_loop()
            held.context.make_steps = partial(self._steps, held.job, held.claimed, self.steps, loop)
            if held.job.has_steps:
                recorded = await self.steps.read(held.job.job_id)
                held.context.steps = self._steps(held.job, held.claimed, self.steps, loop, held.context, recorded)
        if (limit := self._limit(held.job)) is None:
            value = await self.executor.run(handler, held.context)
        else:
            await self._prepare(handler)
            value = await self._in_time(held, limit, self.executor.run(handler, held.context))
        ignored = value is None or held.context.settles_itself
        return None if ignored else await self.plugins.sealed_result(held.job, value)

    def _steps(
        self,
        job: Job,
        claimed: timedelta,
        store: StepStore,
        loop: asyncio.AbstractEventLoop,
        context: JobContext,
        recorded: Sequence[JobStep] = (),
    ) -> AttemptSteps:
        now, threads = partial(self._store_time, job, claimed), self.executor.run_in_thread
        return AttemptSteps(job, recorded, store, loop, now, threads, lambda: context.is_locked, lambda: context.main)

    async def _prepare(self, handler: Handler) -> None:
        """Import the handler where it will run. This does not count towards the job's time limit: a slow import would time out
        again at every retry."""
        try:
            await race(self.clock.sleep(_IMPORTED_WITHIN), self.executor.prepare(handler))
        except LostRace:
            limit = time_span(_IMPORTED_WITHIN)
            raise TimeoutError(f"importing handler {handler.name!r} in a child process took longer than {limit}") from None

    async def _in_time(self, held: InFlightJob, limit: timedelta, work: Coroutine[Any, Any, Any]) -> Any:
        held.context.deadline = self.clock.now() + limit
        try:
            return await race(self.clock.sleep(limit), work)
        except LostRace:
            held.context.cancelled = True
            raise

    def _store_time(self, job: Job, claimed: timedelta) -> datetime:
        """Return the current time by the store's clock: the time of the claim plus the time that has passed since then."""
        return (job.claimed_at or self.clock.now()) + (self.clock.elapsed() - claimed)

    def _failed(self, job: Job, found: HandlerFailure, outcome: AttemptOutcome = AttemptOutcome.FAILED) -> JobOutcome:
        wait = found.retry_in
        if wait is None:
            wait = retry_delay(job.backoff, job.failures + 1, self.chance())
        is_last = found.fatal or job.failures + 1 >= job.max_attempts
        then = "it is poisoned" if is_last else f"it is tried again in {time_span(wait)}"
        first = (found.error.splitlines() or [""])[0]
        log.warning("job %s%s failed: %s; %s", job.job_id, f" ({job.type})" if job.type else "", first, then)
        return JobOutcome(token=job.token, outcome=outcome, error=found.error, retry_in=wait, fatal=found.fatal)


async def _unless_stopped(held: InFlightJob, hooks: Coroutine[Any, Any, None]) -> None:
    """Run the hooks that follow an attempt. If the job is stopped meanwhile, the hooks are cancelled; the outcome stays."""
    try:
        await hooks
    except asyncio.CancelledError:
        if held.stop_outcome is None:
            raise


def _suspended(held: InFlightJob) -> JobOutcome | None:
    """Return the outcome of an attempt that ended because the job sleeps or waits for an event; None for any other attempt."""
    return None if held.context.steps is None else held.context.steps.suspended_outcome()


def _why(outcome: AttemptOutcome) -> str:
    return "cancelled on request" if outcome is AttemptOutcome.CANCELLED else "returned to the queue unfinished"


async def in_time(clock: Clock, limit: timedelta, work: Coroutine[Any, Any, object]) -> bool:
    """Run ``work`` for at most ``limit``, then cancel it. Returns whether it ended in time."""
    try:
        await race(clock.sleep(limit), work)
    except LostRace:
        return False
    return True
