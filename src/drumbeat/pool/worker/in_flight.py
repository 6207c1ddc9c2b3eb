"""The jobs in flight in one worker: claimed, and the outcome not yet written. Also decides how many more to claim."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.histogram import Histogram
from drumbeat.core.job import AttemptOutcome, Job, JobId, JobOutcome, Token
from drumbeat.core.plain import time_span
from drumbeat.pool.worker.context import JobContext, Tell
from drumbeat.pool.worker.options import Mode, WorkPlan
from drumbeat.runtime.worker import Measurement

log = logging.getLogger(__name__)

BATCH = 500  #: the most outcomes that are written in one transaction
SMALLEST_BATCH = 16  #: with this many outcomes, the worker writes them without waiting for more
MOST_PREFETCHED = 500
PREFETCH_TIME = timedelta(milliseconds=20)  #: default prefetch: as many jobs as the worker runs in this time
_FAILURES = (AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT)
_NANOSECOND = 1e-9


class JobState(StrEnum):
    """The state of a claimed job within its worker.

    WAITING ─▶ RUNNING ─▶ STOPPING        DECIDED ◀─▶ WRITING ─▶ removed
       └──────────┴──────────┴───────────────▲
       └──────────┴──────────┴─▶ LOST
    """

    WAITING = "waiting"  #: claimed; its handler has not begun
    RUNNING = "running"  #: its handler runs
    STOPPING = "stopping"  #: its handler was asked to stop and has not ended yet
    DECIDED = "decided"  #: its outcome is known but not written to the store yet
    WRITING = "writing"  #: its outcome is being written
    LOST = "lost"  #: it was taken from this worker: its result is dropped


_OPEN = frozenset({JobState.WAITING, JobState.RUNNING, JobState.STOPPING})  #: the job has no outcome yet


@dataclass(slots=True, eq=False, kw_only=True)
class InFlightJob:
    """A claimed job with its state and its handler's context."""

    job: Job
    token: Token
    tell: Tell | None = None  #: called with the progress that its handler reports
    state: JobState = JobState.WAITING
    task: "asyncio.Task[Any] | None" = None  #: the task that runs its handler; None: it is not running
    is_settled: bool = False  #: the handler has completed the job in a transaction of its own: no outcome is to write
    stop_outcome: AttemptOutcome | None = None  #: the outcome to write, if the handler was asked to stop
    began: timedelta = timedelta()
    claimed: timedelta = timedelta()  #: when it was claimed, as a reading of ``clock.elapsed()``
    sure_until: timedelta = timedelta()  #: until this time the lease holds for sure: no other worker can claim the job

    store_url: str | None = None  #: the store's URL, for handlers that complete jobs in transactions of their own

    context: JobContext = field(init=False)

    def __post_init__(self) -> None:
        self.context = JobContext(self.job, tell=self.tell, store_url=self.store_url)

    def begin(self, now: timedelta) -> None:
        self.state, self.began = JobState.RUNNING, now

    def stop(self, outcome: AttemptOutcome) -> None:
        """Ask the handler to stop. The job gets ``outcome``; if this is called again, the first outcome counts."""
        self.stop_outcome = self.stop_outcome or outcome
        self.context.cancelled = True
        if self.state is JobState.RUNNING:
            self.state = JobState.STOPPING
        if self.task is not None:
            self.task.cancel()

    def handler_ended(self) -> None:
        """Detach the job from its task, and undo a cancellation that was meant for this job: the task runs another job next."""
        if self.stop_outcome is not None and self.task is not None:
            while self.task.cancelling():
                self.task.uncancel()
        self.task = None


class JobTally:
    """Counts the attempts that ended, and of them the done, failed and suspended ones; the rest were cancelled or released.

    The counts are totals; ``interval`` returns the counts since its last call.
    """

    def __init__(self) -> None:
        self.ended = 0  #: attempts that have ended, with any outcome
        self.done = 0  #: attempts that succeeded and whose result the store accepted
        self.failed = 0
        self.suspended = 0  #: attempts that ended with a sleep or a wait for an event
        self.error: str | None = None
        self.average = 0.0  #: moving average of the seconds a job takes; 0: unknown
        self._latency = Histogram()
        self._reported = (0, 0)

    def count(self, verdict: JobOutcome, took: timedelta) -> None:
        self.ended += 1
        self.done += verdict.outcome is AttemptOutcome.DONE
        self.suspended += verdict.outcome is AttemptOutcome.SUSPENDED
        if verdict.outcome in _FAILURES:
            self.failed += 1
            self.error = verdict.error
        seconds = max(took.total_seconds(), 1e-6)
        self.average = seconds if not self.average else 0.9 * self.average + 0.1 * seconds
        self._latency.record(int(seconds / _NANOSECOND))

    def correct(self, refused: Sequence[JobOutcome], dropped: Sequence[JobOutcome]) -> None:
        """Correct the counts after a write: outcomes that the store ``refused`` count as failed instead of done; ``dropped``
        outcomes, whose jobs were taken from this worker, no longer count as done or suspended."""
        self.failed += len(refused)
        self.done -= len(refused) + sum(verdict.outcome is AttemptOutcome.DONE for verdict in dropped)
        self.suspended -= sum(verdict.outcome is AttemptOutcome.SUSPENDED for verdict in dropped)
        self.error = refused[-1].error if refused else self.error

    def interval(self) -> Measurement:
        """Return the counts and latencies of attempts that ended since the last call."""
        ended, failed = self.ended - self._reported[0], self.failed - self._reported[1]
        measured = Measurement(operations=ended, errors=failed, latency=self._latency)
        self._latency, self._reported = Histogram(), (self.ended, self.failed)
        return measured


class InFlight:
    """The jobs that one worker holds. This class only keeps state: it starts no tasks and does not call the store."""

    def __init__(self, plan: WorkPlan, clock: Clock, lease: timedelta, store_url: str | None = None) -> None:
        self._plan = plan
        self._store_url = store_url
        self._clock = clock
        self._lease = lease
        self._held: dict[JobId, InFlightJob] = {}
        self._waiting: deque[InFlightJob] = deque()
        self._running = 0
        self._left = 1 if plan.mode is Mode.ONCE else plan.max_jobs
        self.verdicts: list[JobOutcome] = []  #: outcomes to write, in the order in which the jobs ended
        #: how many outcomes to write in one call: half of the jobs that the worker may hold, so that it runs the other half
        #: while the store writes
        self.batch = SMALLEST_BATCH
        self.slots = plan.concurrency  #: how many jobs may run at once
        self._alone: Token | None = None  #: the last claimed job that must run alone, that is, beside no other job
        self.next_is_alone = False  #: claim nothing until all jobs are finished, then claim one job that must run alone
        self.tally = JobTally()

    @property
    def running(self) -> int:
        return self._running

    @property
    def held_count(self) -> int:
        """How many jobs the worker holds, including jobs whose outcome is not written yet."""
        return len(self._held)

    @property
    def is_busy(self) -> bool:
        """Whether a held job has no outcome yet."""
        return any(held.state in _OPEN for held in self._held.values())

    @property
    def is_spent(self) -> bool:
        """Whether ``max_jobs`` has been reached and the outcomes of all jobs are written."""
        return self._left == 0 and not self._held

    def room(self, lingering: int) -> int:
        """Return how many more jobs the worker can claim now, with ``lingering`` slots taken by handlers that do not stop.

        While the worker runs a job that must run alone: 0. Before it claims such a job (``next_is_alone``): 0 until its other
        jobs have ended and their outcomes are written or being written, then 1.
        """
        if self._runs_alone() or (self.next_is_alone and (self.is_busy or self.verdicts)):
            return 0
        if self.next_is_alone:
            return 1 if self._left is None else min(self._left, 1)
        free = self.slots - lingering + self._prefetch() - self._running - len(self._waiting)
        return max(free if self._left is None else min(free, self._left), 0)

    def _runs_alone(self) -> bool:
        """Whether the worker holds a job that must run alone and has no outcome yet."""
        held = None if self._alone is None else self._find(self._alone)
        return held is not None and held.state in _OPEN

    def _prefetch(self) -> int:
        """Return how many jobs to claim in advance, beyond the jobs that run."""
        if self._plan.prefetch is not None:
            return self._plan.prefetch
        if not self.tally.average:
            return 0
        return min(int(self.slots * PREFETCH_TIME.total_seconds() / self.tally.average), MOST_PREFETCHED)

    def add(self, jobs: Sequence[Job], unsent: asyncio.Event) -> None:
        """Add claimed jobs. When one reports progress, from any thread, the event ``unsent`` is set. If the worker still
        runs an earlier claim of the job, which it has lost, that handler is stopped."""
        loop, now = asyncio.get_running_loop(), self._clock.elapsed()
        until = now + self._lease

        def tell(context: JobContext, share: float, note: str | None) -> None:
            context.unsent = (share, note)
            loop.call_soon_threadsafe(unsent.set)

        for job in jobs:
            if (earlier := self._held.get(job.job_id)) is not None and self.forget(earlier.token):
                said = "job %s was taken from this worker, which has claimed it again; stopping its earlier handler"
                log.warning(said, job.job_id)
            held = InFlightJob(job=job, token=job.token, tell=tell, claimed=now, sure_until=until, store_url=self._store_url)
            self._held[job.job_id] = held
            self._waiting.append(held)
            self._alone = held.token if job.must_run_alone else self._alone
        if self._left is not None:
            self._left = max(self._left - len(jobs), 0)

    def next(self, lingering: int, now: timedelta) -> InFlightJob | None:
        """Return the next job to run; None if no job waits or no slot is free. ``now`` is a reading of ``clock.elapsed()``.

        A job whose lease might have run out is released, not run.
        """
        while self._waiting and self._running + lingering < self.slots:
            held = self._waiting.popleft()
            if now < held.sure_until:
                held.begin(now)
                self._running += 1
                return held
            self._decide(held, JobOutcome(token=held.token, outcome=AttemptOutcome.RELEASED))
            self._left = None if self._left is None else self._left + 1
        return None

    def _decide(self, held: InFlightJob, outcome: JobOutcome) -> None:
        held.state = JobState.DECIDED
        self.verdicts.append(outcome)

    def finish(self, held: InFlightJob, verdict: JobOutcome, now: timedelta) -> None:
        """Record that a job's handler has ended with this outcome. Drops the outcome if the job was taken from this worker."""
        held.handler_ended()
        self._running -= 1
        if held.state is not JobState.LOST:
            self.tally.count(verdict, now - held.began)
            self._decide(held, verdict)

    def finish_settled(self, held: InFlightJob, now: timedelta) -> None:
        """Record that a job is done and no outcome must be written: its handler has completed it in its own transaction."""
        held.handler_ended()
        self._running -= 1
        self.tally.count(JobOutcome(token=held.token, outcome=AttemptOutcome.DONE), now - held.began)
        if self.knows(held.token):
            del self._held[held.token.job_id]

    def take_verdicts(self) -> list[JobOutcome]:
        """Remove up to ``batch`` outcomes from ``verdicts`` and return them, to be written to the store."""
        self.batch = min(max((self.slots + self._prefetch()) // 2, SMALLEST_BATCH), BATCH)
        taken, self.verdicts = self.verdicts[: self.batch], self.verdicts[self.batch :]
        self._move(taken, JobState.WRITING)
        return taken

    def keep_verdicts(self, verdicts: Sequence[JobOutcome]) -> None:
        """Put back outcomes that could not be written, so that they are written next."""
        self._move(verdicts, JobState.DECIDED)
        self.verdicts = [*verdicts, *self.verdicts]

    def settle(self, verdicts: Sequence[JobOutcome]) -> None:
        """Forget the jobs that these outcomes belong to: the outcomes are now written to the store."""
        for verdict in verdicts:
            if self.knows(verdict.token):
                del self._held[verdict.token.job_id]

    def _move(self, verdicts: Sequence[JobOutcome], to: JobState) -> None:
        for verdict in verdicts:
            if held := self._find(verdict.token):
                held.state = to

    def has_run_since(self, moment: timedelta) -> bool:
        """Whether a job is running that was already running at ``moment`` (a reading of ``clock.elapsed()``)."""
        return any(held.task is not None and held.began <= moment for held in self._held.values())

    def tokens(self) -> list[Token]:
        """Return the tokens of jobs without an outcome: the leases of these jobs must be renewed."""
        return [held.token for held in self._held.values() if held.state in _OPEN]

    def renewable(self) -> list[Token]:
        """Return the tokens of jobs without an outcome, except jobs that a transaction of their handler has locked: renewing
        such a job would wait for the transaction, and meanwhile the leases of the worker's other jobs would run out."""
        return [token for token in self.tokens() if not self._held[token.job_id].context.is_locked]

    def renewed(self, tokens: Sequence[Token]) -> None:
        until = self._clock.elapsed() + self._lease
        for token in tokens:
            if held := self._find(token):
                held.sure_until = until

    def lease_left(self, token: Token) -> timedelta | None:
        """Return for how long the lease of a job holds for sure; 0 or less: it may have run out. None: the job is gone."""
        held = self._find(token)
        return None if held is None else held.sure_until - self._clock.elapsed()

    def knows(self, token: Token) -> bool:
        return self._find(token) is not None

    def _find(self, token: Token) -> InFlightJob | None:
        held = self._held.get(token.job_id)
        return held if held is not None and held.token == token else None

    def forget(self, token: Token) -> bool:
        """Stop a job that was taken from this worker, and drop its result. Returns False if the worker no longer holds the job,
        or if its outcome is known already."""
        held = self._find(token)
        if held is None or held.state not in _OPEN:
            return False
        del self._held[token.job_id]
        if held.state is JobState.WAITING:
            self._waiting.remove(held)
        held.stop(AttemptOutcome.RELEASED)
        held.state = JobState.LOST
        return True

    def stop(self, token: Token, outcome: AttemptOutcome) -> None:
        """End a job with this outcome: a waiting job at once, a running one when its handler has stopped."""
        held = self._find(token)
        if held is None or held.state not in _OPEN:
            return
        held.stop(outcome)
        if held.state is JobState.WAITING:
            self._waiting.remove(held)
            self._decide(held, JobOutcome(token=token, outcome=outcome))

    def cancel(self, tokens: Sequence[Token]) -> None:
        """Stop these jobs with the outcome cancelled, except jobs that are stopping already."""
        for token in tokens:
            held = self._find(token)
            if held is not None and held.stop_outcome is None:
                self.stop(token, AttemptOutcome.CANCELLED)

    def release_waiting(self) -> None:
        """Release all jobs that have not begun, so that they return to the queue."""
        for held in list(self._waiting):
            self.stop(held.token, AttemptOutcome.RELEASED)

    def begin_drain(self, within: timedelta) -> None:
        """Release all jobs that have not begun, and log for which jobs the worker waits."""
        self.release_waiting()
        if self.running:
            jobs = "1 running job" if self.running == 1 else f"{self.running} running jobs"
            more = "a second stop signal requeues what still runs"
            log.warning("stopping: waiting up to %s for %s; %s", time_span(within), jobs, more)

    def release_all(self) -> None:
        """Stop all jobs without an outcome and return them to the queue."""
        for token in self.tokens():
            self.stop(token, AttemptOutcome.RELEASED)

    def tasks(self) -> "Iterator[asyncio.Task[Any]]":
        yield from (held.task for held in self._held.values() if held.task is not None)

    def take_progress(self) -> list[tuple[InFlightJob, tuple[float, str | None]]]:
        """Return the unsent progress of each job, and mark it as sent. Skips jobs that a transaction of their handler locks."""
        waiting = (held for held in self._held.values() if not held.context.is_locked)
        unsent = [(held, held.context.unsent) for held in waiting if held.context.unsent is not None]
        for held, _ in unsent:
            held.context.unsent = None
        return [(held, progress) for held, progress in unsent if progress is not None]
