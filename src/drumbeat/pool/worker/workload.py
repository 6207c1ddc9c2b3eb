"""What a job worker does: claim as much as it has room for, run handlers, settle what is done, keep what it holds."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.job import Job, JobOutcome
from drumbeat.pool.worker.attempt import AttemptRunner, InFlightJob, TakenAway, in_time
from drumbeat.pool.worker.claims import Claims
from drumbeat.pool.worker.in_flight import InFlight
from drumbeat.pool.worker.lease_keeper import LeaseKeeper
from drumbeat.pool.worker.options import Mode, WorkPlan
from drumbeat.pool.worker.result_writer import ResultWriter
from drumbeat.runtime.worker import DrainResult, Measurement, WorkloadFigures

log = logging.getLogger(__name__)

IDLE = timedelta(seconds=30)  #: how long to wait for news before looking anyway
_MEMORY_EVERY = timedelta(seconds=1)
_TURNS = 16  #: jobs a task may run before others get their turn
_ENOUGH = 16  #: so many verdicts wait for no others
_MOMENT = timedelta(seconds=5)  #: for giving back what is held, on the way out; for threads to heed that they should stop
_PAUSES = (timedelta(milliseconds=100), timedelta(seconds=5))  #: between tries, while the store is away: the first, the longest
_RESTLESS = (timedelta(milliseconds=5), timedelta(seconds=1))  #: the same, while there is news but nothing to claim


class JobWorkload:
    """One worker's jobs. Handlers are loaded in ``prepare``; a failing one never takes the worker down.

    One task settles and claims, so that what finishes meanwhile is settled together; one waits for news; four keep what is in
    hand and heed orders (``LeaseKeeper``); each job has its own. One that dies of what nobody expected ends the worker, so
    that it never hangs.
    """

    def __init__(
        self,
        plan: WorkPlan,
        claims: Claims,
        attempts: Callable[[], AttemptRunner],
        clock: Clock,
        memory_mb: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """``attempts`` loads the handlers; it is called in a thread, and may raise InvalidInput."""
        self._plan = plan
        self._claims = claims
        self._load = attempts
        self._clock = clock
        self._memory_mb = memory_mb
        self._stack = AsyncExitStack()
        self._attempts: AttemptRunner | None = None
        self.hand = InFlight(plan, clock, claims.lease)
        self._settling = ResultWriter(claims)
        self._keeping = LeaseKeeper(self.hand, claims, clock, self._changed)
        self._news = asyncio.Event()  #: something for the pump to do
        self._hungry = asyncio.Event()  #: there is room, and the last claim came back short
        self._idle = asyncio.Event()  #: nothing is held
        self._stuck = asyncio.Event()  #: nothing is held, yet there is no room
        self._over = asyncio.Event()
        self._broken: Exception | None = None
        self._may_claim = True
        self._leaving = False
        self._asking = False  #: an answer of the store is waited for: it may bring jobs
        self._in_vain = 0
        self._waits_for_others = False  #: it has said that it waits for claims of others that have run out
        self._waited = False  #: the next claim follows upon a wait
        self._weighed = timedelta()
        self._loops: list[asyncio.Task[None]] = []

    def when_in_doubt(self, beat: Callable[[], None]) -> None:
        self._keeping.beat = beat

    async def prepare(self) -> None:
        """Import the handlers, beside the loop: it may take long."""
        self._attempts = await asyncio.to_thread(self._load)
        self._attempts.executor.on_free = self._resume

    async def start(self, phase: str | None, target: int, qps: float | None = None) -> None:
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._group = group
        loops = [self._pump(), self._keeping.keep(), self._keeping.heed(), self._keeping.report()]
        loops += [self._keeping.expect_orders(), self._watch_room(), *([self._listen()] if self._listens else [])]
        self._loops = [group.create_task(self._guarded(loop)) for loop in loops]
        self._news.set()

    def set_phase(self, phase: str) -> None:
        """Jobs have no phases."""

    def set_target(self, connections: int, ramp: timedelta, qps: float | None = None) -> None:
        """A target, if one is ever set, is how many jobs to run at once, up to the plan's own number."""
        self.hand.room_for = min(connections, self._plan.concurrency) if connections > 0 else self._plan.concurrency
        self._news.set()

    def measure(self) -> Measurement | None:
        return self.hand.tally.interval()

    @property
    def figures(self) -> WorkloadFigures:
        tally = self.hand.tally
        return WorkloadFigures(
            active=self.hand.running + self._lingering,
            applied_target=self.hand.room_for,
            operations=tally.ended,
            errors=tally.failed,
            error=tally.error,
        )

    async def ended(self) -> None:
        await self._over.wait()
        if self._broken is not None:
            raise self._broken

    async def drain(self, within: timedelta) -> DrainResult:
        """Give back what has not begun, finish what has; at the limit, stop it and give it back too."""
        self._leaving = True
        self.hand.release_waiting()
        self._changed()
        if await in_time(self._clock, within, self._idle.wait()):
            return DrainResult()
        abandoned = self.hand.held_count
        await self._give_back()
        return DrainResult(timed_out=True, abandoned=abandoned)

    async def close(self) -> None:
        self._leaving = True
        self._note_idle()
        if not self._idle.is_set():
            await self._give_back()
        for task in self._loops:
            task.cancel()
        for task in self.hand.tasks():
            task.cancel()
        await self._stack.aclose()
        if self._attempts is not None:
            await self._attempts.executor.close()

    async def _give_back(self) -> None:
        """Stop every handler and release its job; as far as that goes within a moment."""
        self.hand.release_all()
        self._news.set()
        await in_time(self._clock, _MOMENT, self._idle.wait())

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as exc:
            log.exception("a task of the worker's own failed")
            self._broken = exc
            self._over.set()

    async def _pump(self) -> None:
        """Settle and claim, for as long as there is something to."""
        pause = _PAUSES[0]
        while True:
            await self._news.wait()
            self._news.clear()
            await self._gather()
            while self.hand.verdicts or self._settling.is_unsure or (self._may_claim and self._free()):
                if await self._talk():
                    pause = _PAUSES[0]
                else:
                    await self._clock.sleep(pause)
                    pause = min(pause * 2, _PAUSES[1])

    async def _talk(self) -> bool:
        """Make good for an answer that was lost, else settle and claim; whether the store answered."""
        if not self._settling.is_unsure:
            return await self._exchange()
        answered = await self._settling.recall(self._adopt, self.hand.knows)
        self._note_idle()
        return answered

    async def _gather(self) -> None:
        """Give others that are about to finish a moment to be settled together."""
        if self._plan.gather and self.hand.running and 0 < len(self.hand.verdicts) < _ENOUGH:
            await self._clock.sleep(self._plan.gather)

    def _free(self) -> int:
        """How many to claim with the next exchange."""
        return 0 if self._leaving else self.hand.room(self._lingering)

    @property
    def _lingering(self) -> int:
        return self._attempts.executor.lingering if self._attempts else 0

    async def _exchange(self) -> bool:
        """One transaction; whether the store answered."""
        verdicts, asked = self.hand.take_verdicts(), self._free()
        alone = self.hand.held_count == len(verdicts) and not self._lingering
        try:
            self._asking = True
            told = await self._settling.settle(verdicts, asked, alone=alone)
        except StoreUnavailable as exc:
            log.warning("%s; %d results wait to be settled", exc, len(verdicts))
            self.hand.keep_verdicts(verdicts)
            return False
        except BaseException:
            self.hand.keep_verdicts(verdicts)
            raise
        finally:
            self._asking = False
        self.hand.settle(verdicts)
        self.hand.tally.correct(told.refused, told.dropped)
        self.hand.next_is_alone = self.hand.next_is_alone and not told.asked
        self._may_claim = self._may_claim or told.asked < asked
        self._begin(told.claimed)
        if self._weigh(told.asked, len(told.claimed)):
            await self._call_it_empty()
        return True

    async def _call_it_empty(self) -> None:
        """Leave, unless claims of others have run out: those are taken back first. With an unsure answer it claims again."""
        self._may_claim = True
        try:
            if await self._claims.expire():
                return
            overdue = await self._claims.overdue_in() if self._plan.mode is Mode.DRAIN else None
            if overdue is not None:
                await self._await_overdue(overdue)
                return
        except StoreUnavailable as exc:
            log.warning("%s; what silent workers held could not be taken back", exc)
            return
        self._may_claim = False
        self._over.set()

    async def _await_overdue(self, within: timedelta) -> None:
        """Wait until claims that have run out can be taken back, or until there is something else to claim."""
        if not self._waits_for_others:
            self._waits_for_others = True
            log.warning("claims of other workers have run out; waiting %.0f s to take them over", within.total_seconds())
        began = self._clock.elapsed()
        heard = await self._claims.wait(min(max(within, _RESTLESS[0]), IDLE))
        await self._rest(began, heard=heard)

    def _begin(self, jobs: tuple[Job, ...]) -> None:
        self.hand.add(jobs, self._keeping.unsent)
        if self._leaving:
            self.hand.release_waiting()
        self._fill()

    def _adopt(self, job: Job) -> None:
        """A claim whose answer was lost."""
        log.info("job %s was claimed by an answer that never came; taking it up", job.job_id)
        self._begin((job,))

    def _fill(self) -> None:
        """Start what waits, as far as there is room to run it."""
        while (held := self.hand.next(self._lingering)) is not None:
            held.task = self._group.create_task(self._guarded(self._run(held)))

    async def _run(self, first: InFlightJob) -> None:
        """Run one job after another, for as long as some wait; others get their turn in between."""
        held: InFlightJob | None = first
        for turn in itertools.count(1):
            if held is None or self._attempts is None:
                return
            try:
                verdict = await self._attempts.verdict(held, self._tell_begun if self._plan.prefetch else None)
            except asyncio.CancelledError:
                return
            self._finish(held, verdict)
            if turn % _TURNS == 0:
                await asyncio.sleep(0)
            if (held := self.hand.next(self._lingering)) is not None:
                held.task = asyncio.current_task()

    async def _tell_begun(self, held: InFlightJob) -> None:
        """Tell the store that a job claimed ahead begins. Raises TakenAway when it is no longer this worker's."""
        while True:
            try:
                if await self._claims.begin(held.token):
                    return
                break
            except StoreUnavailable as exc:
                log.warning("%s; job %s begins later", exc, held.job.job_id)
                await self._clock.sleep(_PAUSES[0])
            if self._clock.elapsed() >= held.sure_until:
                break
        self.hand.forget(held.token)
        raise TakenAway

    def _resume(self) -> None:
        """A handler that had been given up is over at last."""
        self._fill()
        self._news.set()

    def _finish(self, held: InFlightJob, verdict: JobOutcome) -> None:
        if held.forgotten:
            log.warning("job %s was taken from this worker; its result is dropped", held.job.job_id)
            self._may_claim = True
        self.hand.finish(held, verdict)
        self._changed()

    def _changed(self) -> None:
        self._news.set()
        self._note_idle()

    def _weigh(self, asked: int, got: int) -> bool:
        """After an exchange: is there more to claim, is it time to go? Whether there was nothing left to claim or to do."""
        if asked:
            self._may_claim = got >= asked
            self._in_vain = 0 if got else self._in_vain + 1
            self._doubt(got)
            if got < asked and (self._plan.mode is Mode.LOOP or self.hand.held_count):
                self._hungry.set()
        self._note_idle()
        if self.hand.is_spent or self._is_too_big():
            self._over.set()
        return asked > 0 and not got and not self.hand.held_count and self._plan.mode is not Mode.LOOP

    def _doubt(self, got: int) -> None:
        """News that brought nothing may have been of this worker; where none can be heard it looks after each wait."""
        if self._waited and not got:
            self._keeping.in_doubt.set()
        self._waited = False

    def _is_too_big(self) -> bool:
        limit, now = self._plan.max_memory_mb, self._clock.elapsed()
        if limit is None or now - self._weighed < _MEMORY_EVERY:
            return False
        self._weighed = now
        return self._memory_mb() > limit

    def _note_idle(self) -> None:
        if self.hand.held_count or self.hand.verdicts or self._asking or self._settling.is_unsure:
            self._idle.clear()
        else:
            self._idle.set()
            if self._is_stuck:
                self._stuck.set()

    @property
    def _listens(self) -> bool:
        """Whether it waits for news: not for one job, nor to drain when there is no room beside the job that runs."""
        return self._plan.mode is Mode.LOOP or (self._plan.mode is Mode.DRAIN and self._plan.concurrency > 1)

    @property
    def _is_stuck(self) -> bool:
        """Whether handlers that cannot be stopped take up all the room, and nothing else is left to finish."""
        return not self.hand.held_count and self._lingering >= self.hand.room_for

    async def _watch_room(self) -> None:
        """Leave once it is stuck and stays so: the handlers' threads end with the process, and another takes its place."""
        while not self._over.is_set():
            await self._stuck.wait()
            self._stuck.clear()
            await self._clock.sleep(_MOMENT)
            if self._is_stuck:
                log.warning("%d handlers do not stop and take up all the room; leaving, to be replaced", self._lingering)
                self._over.set()

    async def _listen(self) -> None:
        """Wait for news while there is room; the more often it was false, the longer at the least."""
        while True:
            await self._hungry.wait()
            self._hungry.clear()
            began = self._clock.elapsed()
            try:
                heard = await self._claims.wait(IDLE)
            except Exception as exc:
                log.warning("news of jobs cannot be heard: %s", exc, exc_info=not isinstance(exc, StoreUnavailable))
                await self._clock.sleep(_PAUSES[1])
                heard = False
            await self._rest(began, heard=heard)
            self._waited = True
            self._may_claim = True
            self._news.set()

    async def _rest(self, began: timedelta, *, heard: bool) -> None:
        """After news that brought nothing: the more often it did, the longer a wait lasts at the least."""
        if heard and self._in_vain > 1:
            least = min(_RESTLESS[0] * 2 ** min(self._in_vain, 20), _RESTLESS[1])
            await self._clock.sleep(max(began + least - self._clock.elapsed(), timedelta()))
        self._in_vain = self._in_vain if heard else 0
