"""What a worker has in hand: jobs that wait, jobs that run, verdicts to be told, and how much more there is room for."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.histogram import Histogram
from drumbeat.core.job import AttemptOutcome, Job, JobId, JobOutcome, Token
from drumbeat.pool.worker.attempt import InFlightJob
from drumbeat.pool.worker.options import Mode, WorkPlan
from drumbeat.runtime.worker import Measurement

BATCH = 500  #: verdicts told at once, at the most
MOST_AHEAD = 500
BLINK = timedelta(milliseconds=20)  #: jobs that are done this quickly are claimed ahead
_FAILURES = (AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT)
_NANOSECOND = 1e-9


class JobTally:
    """What was done, in all and since it was last asked."""

    def __init__(self) -> None:
        self.ended = 0  #: attempts that are over, whatever came of them
        self.done = 0  #: of those, jobs whose result was kept
        self.failed = 0
        self.error: str | None = None
        self.usual = 0.0  #: seconds a job takes, of late; 0 until known
        self._latency = Histogram()
        self._told = (0, 0)

    def count(self, verdict: JobOutcome, took: timedelta) -> None:
        self.ended += 1
        self.done += verdict.outcome is AttemptOutcome.DONE
        if verdict.outcome in _FAILURES:
            self.failed += 1
            self.error = verdict.error
        seconds = max(took.total_seconds(), 1e-6)
        self.usual = seconds if not self.usual else 0.9 * self.usual + 0.1 * seconds
        self._latency.record(int(seconds / _NANOSECOND))

    def correct(self, refused: Sequence[JobOutcome], dropped: Sequence[JobOutcome]) -> None:
        """Of what was counted as done, some failed after all; and some came too late, for jobs taken from this worker."""
        self.failed += len(refused)
        self.done -= len(refused) + sum(verdict.outcome is AttemptOutcome.DONE for verdict in dropped)
        self.error = refused[-1].error if refused else self.error

    def interval(self) -> Measurement:
        """What was counted since the last call."""
        ended, failed = self.ended - self._told[0], self.failed - self._told[1]
        measured = Measurement(operations=ended, errors=failed, latency=self._latency)
        self._latency, self._told = Histogram(), (self.ended, self.failed)
        return measured


class InFlight:
    """The jobs of one worker. Keeps no task and calls no store."""

    def __init__(self, plan: WorkPlan, clock: Clock, lease: timedelta) -> None:
        self._plan = plan
        self._clock = clock
        self._lease = lease
        self._held: dict[JobId, InFlightJob] = {}
        self._waiting: deque[InFlightJob] = deque()
        self._running = 0
        self._left = 1 if plan.mode is Mode.ONCE else plan.max_jobs
        self.verdicts: list[JobOutcome] = []
        self._telling: frozenset[Token] = frozenset()  #: verdicts that are on their way to the store
        self.room_for = plan.concurrency  #: how many may run at once
        self._alone: Token | None = None  #: the last job that must run alone: such jobs are given one by one
        self.next_is_alone = False  #: nothing more is claimed until all is finished; then one job, to be run alone
        self.tally = JobTally()

    @property
    def running(self) -> int:
        return self._running

    @property
    def held_count(self) -> int:
        """Jobs that are this worker's as far as it knows, those with a verdict too until it is told."""
        return len(self._held)

    @property
    def is_busy(self) -> bool:
        """Whether it holds anything that has no verdict yet."""
        return len(self._held) > len(self._decided())

    @property
    def is_spent(self) -> bool:
        """Whether it has worked on as many jobs as it ever should."""
        return self._left == 0 and not self._held

    def room(self, lingering: int) -> int:
        """How many more to claim; none beside a job that must run alone."""
        if self._runs_alone() or (self.next_is_alone and self.is_busy):
            return 0
        if self.next_is_alone:
            return 1 if self._left is None else min(self._left, 1)
        wanted = self.room_for - lingering + self._ahead() - self._running - len(self._waiting)
        return max(wanted if self._left is None else min(wanted, self._left), 0)

    def _runs_alone(self) -> bool:
        """Whether a job that must run alone has no verdict yet."""
        return self._alone is not None and self.knows(self._alone) and self._alone not in self._decided()

    def _ahead(self) -> int:
        """How many to hold beyond those that run: as many as are done in a blink."""
        if self._plan.prefetch is not None:
            return self._plan.prefetch
        return min(int(self.room_for * BLINK.total_seconds() / self.tally.usual), MOST_AHEAD) if self.tally.usual else 0

    def add(self, jobs: Sequence[Job], unsent: asyncio.Event) -> None:
        """Jobs were claimed. Their progress sets ``unsent``, from whichever thread."""
        loop, until = asyncio.get_running_loop(), self._clock.elapsed() + self._lease

        def wake() -> None:
            loop.call_soon_threadsafe(unsent.set)

        for job in jobs:
            held = InFlightJob(job=job, token=job.token, wake=wake, sure_until=until)
            self._held[job.job_id] = held
            self._waiting.append(held)
            self._alone = held.token if job.must_run_alone else self._alone
        if self._left is not None:
            self._left = max(self._left - len(jobs), 0)

    def next(self, lingering: int) -> InFlightJob | None:
        """The next to run, if there is room for one. One whose lease may have run out is given back: it may be ours still."""
        while self._waiting and self._running + lingering < self.room_for:
            held = self._waiting.popleft()
            held.began = self._clock.elapsed()
            if held.began < held.sure_until:
                self._running += 1
                return held
            self.verdicts.append(JobOutcome(token=held.token, outcome=AttemptOutcome.RELEASED))
            self._left = None if self._left is None else self._left + 1
        return None

    def finish(self, held: InFlightJob, verdict: JobOutcome) -> None:
        """A handler is over."""
        held.over()
        self._running -= 1
        if not held.forgotten:
            self.tally.count(verdict, self._clock.elapsed() - held.began)
            self.verdicts.append(verdict)

    def take_verdicts(self) -> list[JobOutcome]:
        taken, self.verdicts = self.verdicts[:BATCH], self.verdicts[BATCH:]
        self._telling = frozenset(verdict.token for verdict in taken)
        return taken

    def keep_verdicts(self, verdicts: Sequence[JobOutcome]) -> None:
        """They could not be told: they are next."""
        self.verdicts = [*verdicts, *self.verdicts]
        self._telling = frozenset()

    def settle(self, verdicts: Sequence[JobOutcome]) -> None:
        """They were told: those jobs are no longer in hand."""
        self._telling = frozenset()
        for verdict in verdicts:
            held = self._held.get(verdict.token.job_id)
            if held is not None and held.token == verdict.token:
                del self._held[verdict.token.job_id]

    def runs_since(self, moment: timedelta) -> bool:
        """Whether something is still in hand that had begun by then."""
        return any(held.task is not None and held.began <= moment for held in self._held.values())

    def tokens(self) -> list[Token]:
        """What to renew: everything that has no verdict yet."""
        decided = self._decided()
        return [held.token for held in self._held.values() if held.token not in decided]

    def _decided(self) -> set[Token]:
        return {*self._telling, *(verdict.token for verdict in self.verdicts)}

    def renewed(self, tokens: Sequence[Token]) -> None:
        until = self._clock.elapsed() + self._lease
        for token in tokens:
            if held := self._find(token):
                held.sure_until = until

    def knows(self, token: Token) -> bool:
        return self._find(token) is not None

    def _find(self, token: Token) -> InFlightJob | None:
        held = self._held.get(token.job_id)
        return held if held is not None and held.token == token else None

    def forget(self, token: Token) -> bool:
        """It is not ours any more: stop its handler, drop its result. Whether it was still in hand, without a verdict."""
        held = self._find(token)
        if held is None or token in self._decided():
            return False
        del self._held[token.job_id]
        held.forgotten = True
        if held in self._waiting:
            self._waiting.remove(held)
        held.stop(AttemptOutcome.RELEASED)
        return True

    def stop(self, token: Token, outcome: AttemptOutcome) -> None:
        """Make a job end with this outcome: one that waits at once, one that runs once its handler has stopped."""
        held = self._find(token)
        if held is None:
            return
        held.stop(outcome)
        if held in self._waiting:
            self._waiting.remove(held)
            self.verdicts.append(JobOutcome(token=token, outcome=outcome))

    def cancel(self, tokens: Sequence[Token]) -> None:
        """Make jobs end as cancelled; one that is stopping already is left to it."""
        for token in tokens:
            held = self._find(token)
            if held is not None and held.stopped is None:
                self.stop(token, AttemptOutcome.CANCELLED)

    def release_waiting(self) -> None:
        """What has not begun is given back."""
        for held in list(self._waiting):
            self.stop(held.token, AttemptOutcome.RELEASED)

    def release_all(self) -> None:
        """Everything without a verdict is stopped and given back."""
        for token in self.tokens():
            self.stop(token, AttemptOutcome.RELEASED)

    def tasks(self) -> "Iterator[asyncio.Task[Any]]":
        yield from (held.task for held in self._held.values() if held.task is not None)

    def take_progress(self) -> list[tuple[InFlightJob, tuple[float, str | None]]]:
        """Progress that was not sent yet."""
        told = [(held, held.news) for held in self._held.values() if held.news is not None]
        for held, _ in told:
            held.news = None
        return [(held, news) for held, news in told if news is not None]
