"""What a worker of jobs does: claim jobs, run their handlers, write outcomes, renew leases."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.job import Job, JobOutcome
from drumbeat.pool.worker.attempt import AttemptRunner, TakenAway, in_time
from drumbeat.pool.worker.claims import Claims
from drumbeat.pool.worker.in_flight import SMALLEST_BATCH, InFlight, InFlightJob, JobState
from drumbeat.pool.worker.lease_keeper import LeaseKeeper
from drumbeat.pool.worker.notification_pause import SHORTEST, NotificationPause
from drumbeat.pool.worker.options import Mode, WorkPlan
from drumbeat.pool.worker.own_commit import confirm_outcome
from drumbeat.pool.worker.result_writer import ResultWriter
from drumbeat.pool.worker.step_writer import StepWriter
from drumbeat.runtime.worker import DrainResult, Measurement, WorkloadFigures

log = logging.getLogger(__name__)

IDLE = timedelta(seconds=30)  #: how long to wait for a notification before claiming anyway
_MEMORY_EVERY = timedelta(seconds=1)
_YIELD_EVERY = 16  #: after this many jobs a task yields to other tasks
_GRACE = timedelta(seconds=5)  #: time limit for releasing jobs on exit, and for handlers in threads to stop
_PAUSES = (timedelta(milliseconds=100), timedelta(seconds=5))  #: first and longest pause before a store error is retried


class JobWorkload:
    """Claims and runs the jobs of one worker. A failing handler never ends the worker.

    One task writes outcomes and claims jobs, so that results are written in batches; one waits for notifications of new jobs;
    four are the loops of ``LeaseKeeper``; one records the steps of jobs; one calls hooks for jobs that were taken back; one
    ends the worker if all its slots are stuck; the others run jobs, one at a time each. If a task fails unexpectedly, the
    worker exits.
    """

    def __init__(
        self,
        plan: WorkPlan,
        claims: Claims,
        attempts: Callable[[StepWriter], AttemptRunner],
        clock: Clock,
        memory_mb: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """``attempts`` imports the handlers and returns their runner. It is called in a thread, and can raise InvalidInput."""
        self._plan = plan
        self._claims = claims
        self._load = attempts
        self._clock = clock
        self._memory_mb = memory_mb
        self._stack = AsyncExitStack()
        self._attempts: AttemptRunner | None = None
        self.in_flight = InFlight(plan, clock, claims.lease, claims.store_url)
        self._writer = ResultWriter(claims)
        self._steps = StepWriter(claims, clock, self.in_flight.forget, self.in_flight.lease_left)
        self._keeper = LeaseKeeper(self.in_flight, claims, clock, self._changed)
        self._confirm = partial(confirm_outcome, claims, clock)
        self._wake = asyncio.Event()  #: wakes the task that writes outcomes and claims jobs
        self._wants_jobs = asyncio.Event()  #: slots are free, and the last claim brought fewer jobs than asked for
        self._idle = asyncio.Event()  #: the worker holds no job
        self._stuck = asyncio.Event()  #: the worker holds no job, but handlers that do not stop take up all slots
        self._done = asyncio.Event()
        self._broken: Exception | None = None
        self._may_claim = True
        self._leaving = False
        self._exchanging = False  #: a call to the store is in progress that may claim jobs
        self._pause = NotificationPause(clock)
        self._waits_for_others = False  #: the wait for expired claims of other workers has been logged
        self._waited = False  #: the next claim follows a wait for notifications
        self._memory_checked = timedelta()
        self._loops: list[asyncio.Task[None]] = []

    def on_possible_instructions(self, beat: Callable[[], None]) -> None:
        self._keeper.beat = beat

    async def prepare(self) -> None:
        """Import the handlers, in a thread because an import can take long."""
        self._attempts = await asyncio.to_thread(self._load, self._steps)
        self._attempts.executor.on_free = self._resume

    async def start(self, phase: str | None, target: int, qps: float | None = None) -> None:
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._group = group
        loops = [self._pump(), self._keeper.keep(), self._keeper.poll_cancelled(), self._keeper.report()]
        loops += [
            self._keeper.poll_orders(),
            self._watch_stuck(),
            self._steps.run(),
            self._claims.taken_back.run(),
            *([self._listen()] if self._listens else []),
        ]
        self._loops = [group.create_task(self._guarded(loop)) for loop in loops]
        self._wake.set()

    def set_phase(self, phase: str) -> None:
        """Do nothing: only benchmarks have phases."""

    def set_target(self, connections: int, ramp: timedelta, qps: float | None = None) -> None:
        """Set how many jobs run at once: ``connections``, up to the plan's concurrency; if 0, that. Ignores ramp and qps."""
        self.in_flight.slots = min(connections, self._plan.concurrency) if connections > 0 else self._plan.concurrency
        self._wake.set()

    def measure(self) -> Measurement | None:
        return self.in_flight.tally.interval()

    @property
    def figures(self) -> WorkloadFigures:
        active, slots, tally = self.in_flight.running + self._lingering, self.in_flight.slots, self.in_flight.tally
        return WorkloadFigures(
            active=active, applied_target=slots, operations=tally.ended, errors=tally.failed, error=tally.error
        )

    @property
    def worker_meta(self) -> Mapping[str, Any]:
        return self._claims.worker_meta

    async def ended(self) -> None:
        await self._done.wait()
        if self._broken is not None:
            raise self._broken

    async def drain(self, within: timedelta) -> DrainResult:
        """Release jobs that have not begun, and finish the others; a job that runs longer than ``within`` is released too."""
        self._leaving = True
        self.in_flight.begin_drain(within)
        self._changed()
        if await in_time(self._clock, within, self._idle.wait()):
            return DrainResult()
        abandoned = self.in_flight.held_count
        await self._give_back()
        return DrainResult(timed_out=True, abandoned=abandoned)

    async def close(self) -> None:
        self._leaving = True
        self._note_idle()
        if not self._idle.is_set():
            await self._give_back()
        await in_time(self._clock, _GRACE, self._claims.taken_back.until_called())
        for task in (*self._loops, *self.in_flight.tasks()):
            task.cancel()
        await self._stack.aclose()
        if self._attempts is not None:
            await self._attempts.executor.close()

    async def _give_back(self) -> None:
        """Stop every handler and release its job, within a short time limit."""
        self.in_flight.release_all()
        self._wake.set()
        await in_time(self._clock, _GRACE, self._idle.wait())

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as exc:
            log.exception("internal task %s failed; this worker exits, its jobs are retried", getattr(work, "__qualname__", ""))
            self._broken = exc
            self._done.set()

    async def _pump(self) -> None:
        """Write outcomes and claim jobs, whenever there are outcomes to write or free slots."""
        pause = _PAUSES[0]
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._gather()
            while self.in_flight.verdicts or self._writer.is_unsure or (self._may_claim and self._free()):
                if await self._step():
                    pause = _PAUSES[0]
                else:
                    await self._clock.sleep(pause)
                    pause = min(pause * 2, _PAUSES[1])

    async def _step(self) -> bool:
        """Write outcomes and claim jobs. If the answer to the last claim was lost, instead read from the store which jobs this
        worker holds. Returns whether the store answered now."""
        if not self._writer.is_unsure:
            return await self._exchange()
        answered = await self._writer.recall(self._adopt, self.in_flight.knows)
        self._note_idle()
        return answered

    async def _gather(self) -> None:
        """Wait briefly for other jobs to finish, so that their outcomes are written together."""
        if self._plan.gather and self.in_flight.running and 0 < len(self.in_flight.verdicts) < SMALLEST_BATCH:
            await self._clock.sleep(self._plan.gather)

    def _free(self) -> int:
        """Return how many jobs to claim next; 0 while the worker is leaving."""
        return 0 if self._leaving else self.in_flight.room(self._lingering)

    @property
    def _lingering(self) -> int:
        return self._attempts.executor.lingering if self._attempts else 0

    async def _exchange(self) -> bool:
        """Write outcomes and claim jobs in one transaction. Returns whether the store answered."""
        verdicts, asked = self.in_flight.take_verdicts(), self._free()
        alone = self.in_flight.held_count == len(verdicts) and not self._lingering
        try:
            self._exchanging = True
            written = await self._writer.settle(verdicts, asked, alone=alone)
        except StoreUnavailable as exc:
            log.warning("failed to write %d results and to claim jobs: %s; retrying", len(verdicts), exc)
            self.in_flight.keep_verdicts(verdicts)
            return False
        except BaseException:
            self.in_flight.keep_verdicts(verdicts)
            raise
        finally:
            self._exchanging = False
        self.in_flight.settle(verdicts)
        self.in_flight.tally.correct(written.refused, written.dropped)
        self.in_flight.next_is_alone = self.in_flight.next_is_alone and not written.asked
        self._may_claim = self._may_claim or written.asked < asked
        self._begin(written.claimed)
        if self._note_claim(written.asked, len(written.claimed)):
            await self._leave_if_empty()
        return True

    async def _leave_if_empty(self) -> None:
        """Let the worker exit, because no job is left to claim. But if jobs of other workers have an expired lease, first take
        these jobs back or, in mode drain, wait until that is possible. If the store is unavailable, the worker does not exit,
        but tries again."""
        self._may_claim = True
        try:
            if await self._claims.expire():
                return
            overdue = await self._claims.overdue_in() if self._plan.mode is Mode.DRAIN else None
            if overdue is not None:
                await self._await_overdue(overdue)
                return
        except StoreUnavailable as exc:
            log.warning("failed to take back jobs of silent workers: %s; retrying", exc)
            return
        self._may_claim = False
        self._done.set()

    async def _await_overdue(self, within: timedelta) -> None:
        """Wait until jobs with an expired lease can be taken back (see ``Claims.overdue_in``), or until there is a new job."""
        if not self._waits_for_others:
            self._waits_for_others = True
            log.warning(
                "jobs of other workers have an expired lease; taking them over in %.0f s unless the leases are renewed",
                within.total_seconds(),
            )
        began = self._clock.elapsed()
        notified = await self._claims.wait(min(max(within, SHORTEST), IDLE))
        await self._pause.sleep(began, notified=notified)

    def _begin(self, jobs: tuple[Job, ...]) -> None:
        self.in_flight.add(jobs, self._keeper.unsent)
        if self._leaving:
            self.in_flight.release_waiting()
        self._fill()

    def _adopt(self, job: Job) -> None:
        """Run a job that this worker has claimed without knowing it, because the store's answer to the claim was lost."""
        log.info("job %s was claimed, but the store's answer was lost; running it", job.job_id)
        self._begin((job,))

    def _fill(self) -> None:
        """Start a waiting job if a slot is free, and the next one when the first has run until it waits for something: a task
        that runs quick jobs takes several of them, so that fewer tasks are needed."""
        if (held := self._next(self._clock.elapsed())) is not None:
            held.task = self._group.create_task(self._guarded(self._run(held)))
            asyncio.get_running_loop().call_soon(self._fill)

    async def _run(self, first: InFlightJob) -> None:
        """Run a job, then the next waiting jobs, one after another, and yield to other tasks in between."""
        held: InFlightJob | None = first
        first.began, task = self._clock.elapsed(), first.task
        for turn in itertools.count(1):
            if held is None or self._attempts is None:
                return
            held.task = task
            try:
                ended = await self._attempts.run(held, self._tell_begun if self._plan.prefetch else None, self._confirm)
            except asyncio.CancelledError:
                return
            now = self._clock.elapsed()
            self._finish(held, None if held.is_settled else ended, now)
            if turn % _YIELD_EVERY == 0 or (len(self.in_flight.verdicts) >= self.in_flight.batch and not self._exchanging):
                await asyncio.sleep(0)
                now = self._clock.elapsed()
            held = self._next(now)

    def _next(self, now: timedelta) -> InFlightJob | None:
        """Return the next job to run, if any, and wake the task that writes outcomes for jobs that are released instead."""
        held = self.in_flight.next(self._lingering, now)
        if held is None and self.in_flight.verdicts:
            self._wake.set()
        return held

    async def _tell_begun(self, held: InFlightJob) -> None:
        """Record in the store that a prefetched job begins. Raises TakenAway if the job was taken from this worker."""
        while True:
            try:
                if await self._claims.begin(held.token):
                    return
                break
            except StoreUnavailable as exc:
                log.warning("failed to record that job %s begins: %s; retrying", held.job.job_id, exc)
                await self._clock.sleep(_PAUSES[0])
            if self._clock.elapsed() >= held.sure_until:
                break
        held.task = None  # forget() would cancel this task, which runs other jobs next
        self.in_flight.forget(held.token)
        raise TakenAway

    def _resume(self) -> None:
        """Start a waiting job. Called when a handler that did not stop in time has ended at last and freed its slot."""
        self._fill()
        self._wake.set()

    def _finish(self, held: InFlightJob, verdict: JobOutcome | None, now: timedelta) -> None:
        """Note the outcome of a job; None: its handler has completed it in the store itself."""
        if verdict is None:
            self.in_flight.finish_settled(held, now)
        else:
            self.in_flight.finish(held, verdict, now)
        if held.state is JobState.LOST and verdict is not None:
            log.warning("job %s was taken from this worker; its result is dropped", held.job.job_id)
        self._may_claim = self._may_claim or held.state is JobState.LOST or verdict is None
        if self.in_flight.is_spent:
            self._done.set()
        self._changed()

    def _changed(self) -> None:
        self._wake.set()
        self._note_idle()

    def _note_claim(self, asked: int, got: int) -> bool:
        """Note that a claim for ``asked`` jobs returned ``got`` jobs. Returns whether the worker can exit: no job is left."""
        if asked:
            self._may_claim = got >= asked
            self._pause.note_claim(bool(got))
            self._suspect_orders(got)
            if got < asked and (self._plan.mode is Mode.LOOP or self.in_flight.held_count):
                self._wants_jobs.set()
        self._note_idle()
        if self.in_flight.is_spent or self._uses_too_much_memory():
            self._done.set()
        return asked > 0 and not got and not self.in_flight.held_count and self._plan.mode is not Mode.LOOP

    def _suspect_orders(self, got: int) -> None:
        """If the wait for notifications ended but there was no job to claim, check whether this worker was ordered to exit."""
        if self._waited and not got:
            self._keeper.in_doubt.set()
        self._waited = False

    def _uses_too_much_memory(self) -> bool:
        limit, now = self._plan.max_memory_mb, self._clock.elapsed()
        if limit is None or now - self._memory_checked < _MEMORY_EVERY:
            return False
        self._memory_checked = now
        return self._memory_mb() > limit

    def _note_idle(self) -> None:
        if self.in_flight.held_count or self.in_flight.verdicts or self._exchanging or self._writer.is_unsure:
            self._idle.clear()
        else:
            self._idle.set()
            if self._is_stuck:
                self._stuck.set()

    @property
    def _listens(self) -> bool:
        """Whether the worker waits for notifications: in mode loop, and in mode drain with more than one slot.

        In mode drain, a worker with one slot has no free slot while a job runs, and exits when no job is left.
        """
        return self._plan.mode is Mode.LOOP or (self._plan.mode is Mode.DRAIN and self._plan.concurrency > 1)

    @property
    def _is_stuck(self) -> bool:
        """Whether handlers that do not stop take up all slots, and no other job is left to finish."""
        return not self.in_flight.held_count and self._lingering >= self.in_flight.slots

    async def _watch_stuck(self) -> None:
        """Let the worker exit if handlers that do not stop take up all slots: their threads end only with the process."""
        while not self._done.is_set():
            await self._stuck.wait()
            self._stuck.clear()
            await self._clock.sleep(_GRACE)
            if self._is_stuck:
                log.warning("%d handlers that did not stop in time take up all slots; this worker exits", self._lingering)
                self._done.set()

    async def _listen(self) -> None:
        """Wait for notifications of new jobs while slots are free."""
        while True:
            await self._wants_jobs.wait()
            self._wants_jobs.clear()
            began = self._clock.elapsed()
            try:
                notified = await self._claims.wait(IDLE)
            except Exception as exc:
                log.warning("failed to wait for new jobs: %s; retrying", exc, exc_info=not isinstance(exc, StoreUnavailable))
                await self._clock.sleep(_PAUSES[1])
                notified = False
            await self._pause.sleep(began, notified=notified)
            self._waited = True
            self._may_claim = True
            self._wake.set()
