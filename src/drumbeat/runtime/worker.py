"""A worker's life: join, get ready, wait for START, work, drain, leave. Its pulse beats through all of it."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError, InvalidInput, MissingExtra, NotFound, StoreUnavailable, WorkerGone
from drumbeat.core.pool import Thresholds
from drumbeat.core.worker import ExitCode, WorkerStatus
from drumbeat.runtime.event_handler import LONGEST_ERROR, EventHandler, Senses
from drumbeat.runtime.heartbeat import HeartbeatLoop
from drumbeat.runtime.sampling import Sampling
from drumbeat.runtime.shutdown import End, Shutdown
from drumbeat.runtime.store_connection import StoreConnection
from drumbeat.runtime.timeouts import LostRace, cut, describe, pause, race, with_timeout
from drumbeat.runtime.workload import Doubting, DrainResult, Measurement, Workload, WorkloadFigures
from drumbeat.store.interface import Joining, Store, WorkerChange

__all__ = ["DrainResult", "Measurement", "Senses", "WorkerLife", "Workload", "WorkloadFigures"]

log = logging.getLogger(__name__)

_OVERTIME = timedelta(seconds=1)  #: so that a drain that keeps its own limit is never cut by ours


class WorkerLife:
    """One worker, from joining its pool to leaving it.

    Its pulse is a task of its own: it beats in every state, brings events, and is the only one that talks to the store. The
    life goes from state to state and runs the workload, and never waits for the store: while that is away the work goes on,
    until the silence has lasted so long that others may soon call this worker lost.
    """

    def __init__(
        self,
        store: Store,
        identity: Joining,
        thresholds: Thresholds,
        workload: Workload,
        *,
        clock: Clock,
        probe: Senses | None = None,
        gated: bool = True,
    ) -> None:
        """With ``gated`` off the work begins as soon as it is ready, without START."""
        self._store = store
        self._identity = identity
        self._thresholds = thresholds
        self._workload = workload
        self._clock = clock
        self._ending = ending = Shutdown()
        self._line = line = StoreConnection(clock, thresholds)
        samples = Sampling(workload, clock)
        self._conduct = EventHandler(
            identity,
            thresholds,
            workload,
            clock=clock,
            probe=probe,
            gated=gated,
            line=line,
            samples=samples,
            ending=ending,
        )
        self._pulse = HeartbeatLoop(
            store, identity, thresholds.heartbeat_every, self._conduct, clock=clock, line=line, samples=samples
        )
        if isinstance(workload, Doubting):
            workload.when_in_doubt(self._pulse.hurry)
        self._meta: Mapping[str, Any] = {}
        self.work_is_done = False  #: it leaves, or has left, because its work came to its end and nobody told it to

    async def run(self) -> ExitCode:
        """Live until told to stop, out of work or past help; once. The code is what the process should exit with."""
        if await self._join():
            async with asyncio.TaskGroup() as group:
                beside = [group.create_task(self._beat()), group.create_task(self._conduct.keep_appointments())]
                await self._live()
                for task in beside:
                    task.cancel()
            await self._leave()
        return self._ending.end.code

    def request_stop(self, reason: str) -> None:
        """Drain and leave; asked a second time, leave at once."""
        if self._ending.over.is_set():
            self._ending.hurry.set()
        self._ending.decide(self._clean_end(reason))

    async def leave_at_once(self, reason: str) -> None:
        """Write that it has left, after ``run`` was cancelled: nobody shall take it for alive until it is found silent."""
        self._ending.decide(End(code=ExitCode.CLEAN, reason=reason))
        await self._leave()

    def _clean_end(self, reason: str) -> End:
        return End(code=ExitCode.CLEAN, reason=reason, drain=self._thresholds.drain_within)

    async def _join(self) -> bool:
        try:
            row = await race(self._ending.over.wait(), self._pulse.join())
        except LostRace:
            return False
        except StoreUnavailable as exc:
            self._ending.decide(End(code=ExitCode.STORE_LOST, reason=f"cannot join: {exc}"))
            return False
        except DrumbeatError as exc:
            self._ending.decide(End(code=ExitCode.CONFIGURATION, reason=f"cannot join: {exc}"))
            return False
        except Exception as exc:
            log.exception("joining failed")
            self._ending.decide(End(code=ExitCode.FATAL, reason=f"cannot join: {describe(exc)}"))
            return False
        self._conduct.be_born(row)
        self._meta = row.meta
        return True

    async def _live(self) -> None:
        try:
            if await self._get_ready() and await self._wait_for_start():
                await self._work()
        except Exception as exc:
            log.exception("the workload failed")
            self._ending.decide(End(code=ExitCode.FATAL, reason=describe(exc)))
        finally:
            await self._close()

    async def _get_ready(self) -> bool:
        try:
            await race(self._ending.over.wait(), self._workload.prepare())
        except LostRace:
            return False
        except (InvalidInput, NotFound, MissingExtra) as exc:
            self._ending.decide(End(code=ExitCode.CONFIGURATION, reason=str(exc)))
            return False
        except StoreUnavailable as exc:
            self._ending.decide(End(code=ExitCode.STORE_LOST, reason=str(exc)))
            return False
        self._pulse.tell(WorkerStatus.WAITING, "ready")
        return not self._ending.over.is_set()

    async def _wait_for_start(self) -> bool:
        within = self._thresholds.start_within
        try:
            opened = await race(self._ending.over.wait(), pause(self._clock, within, self._conduct.gate))
        except LostRace:
            return False
        if not opened:
            reason = f"expected START within {within.total_seconds():g} s of being ready, got none"
            self._ending.decide(End(code=ExitCode.START_TIMEOUT, reason=reason))
        return not self._ending.over.is_set()

    async def _work(self) -> None:
        try:
            await race(self._ending.hurry.wait(), self._conduct.start_work())
        except LostRace:
            return
        self._pulse.tell(WorkerStatus.ACTIVE, "started")
        await self._until_over()
        self._conduct.stop_work()
        if (within := self._ending.end.drain) is not None:
            await self._drain(within)

    async def _until_over(self) -> None:
        try:
            await race(self._ending.over.wait(), self._workload.ended())
        except LostRace:
            return
        self.work_is_done = True
        self._ending.decide(self._clean_end("the work is done"))

    async def _drain(self, within: timedelta) -> None:
        self._pulse.tell(WorkerStatus.DRAINING, self._ending.end.reason)
        result = await self._drained(within)
        self._conduct.take_last_sample()
        if result.timed_out:
            how = "drain_cut_short" if self._ending.hurry.is_set() else "drain_timed_out"
            log.warning("%s: %d abandoned", how, result.abandoned)
            self._meta = {**self._meta, how: True, "abandoned": result.abandoned}

    async def _drained(self, within: timedelta) -> DrainResult:
        drain = race(self._ending.hurry.wait(), self._workload.drain(within))
        try:
            return await race(self._clock.sleep(within + _OVERTIME), drain)
        except LostRace:
            return DrainResult(timed_out=True, abandoned=self._workload.figures.active)

    async def _close(self) -> None:
        try:
            await race(self._closing_time(), self._workload.close())
        except LostRace:
            log.warning("the workload did not close in time; leaving without it")
        except Exception:
            log.exception("the workload did not close cleanly")

    async def _closing_time(self) -> None:
        """As long as a drain may take, but only a moment once there is a hurry."""
        if await pause(self._clock, self._thresholds.drain_within, self._ending.hurry):
            await self._clock.sleep(self._line.moment)

    async def _leave(self) -> None:
        """Write the end, if the store will have it; the process ends either way."""
        end = self._ending.end
        error = None if end.code is ExitCode.CLEAN else cut(end.reason, LONGEST_ERROR)
        change = WorkerChange(exit_code=end.code, error=error, meta=self._meta)
        try:
            await with_timeout(self._clock, self._line.moment, self._pulse.leave(end.status, end.reason, change))
        except Exception as exc:
            log.warning("could not write that we left: %s", describe(exc))

    async def _beat(self) -> None:
        try:
            await self._pulse.run()
        except WorkerGone as exc:
            self._ending.decide(End(code=await self._why_gone(), reason=str(exc), urgent=True))
        except StoreUnavailable as exc:
            reason = f"the store has been silent for {self._line.silence.total_seconds():.0f} s: {exc}"
            self._ending.decide(End(code=ExitCode.STORE_LOST, reason=reason, urgent=True))
        except Exception as exc:
            log.exception("the pulse failed")
            self._ending.decide(End(code=ExitCode.FATAL, reason=describe(exc), urgent=True))

    async def _why_gone(self) -> ExitCode:
        """A row closed as lost says that we were cut off; any other was taken from us."""
        me = self._identity
        try:
            row = await with_timeout(self._clock, self._line.moment, self._store.workers.get(me.pool_id, me.worker_id))
        except DrumbeatError:
            return ExitCode.STORE_LOST
        return ExitCode.STORE_LOST if row.status is WorkerStatus.LOST else ExitCode.FATAL
