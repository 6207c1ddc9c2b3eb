"""A worker's life cycle: join, prepare, wait for START, work, drain, leave. Heartbeats are sent throughout."""

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError, InvalidInput, MissingExtra, NotFound, StoreUnavailable, WorkerGone
from drumbeat.core.pool import Thresholds
from drumbeat.core.worker import ExitCode, WorkerStatus
from drumbeat.runtime.event_handler import LONGEST_ERROR, EventHandler, ResourceProbe
from drumbeat.runtime.heartbeat import HeartbeatLoop
from drumbeat.runtime.sampling import Sampling
from drumbeat.runtime.shutdown import EndDecision, Shutdown
from drumbeat.runtime.store_connection import StoreConnection
from drumbeat.runtime.task_group import plain_task_group
from drumbeat.runtime.timeouts import LostRace, describe, pause, race, truncate, with_timeout
from drumbeat.runtime.workload import DescribesWorker, DrainResult, Measurement, WakesHeartbeat, Workload, WorkloadFigures
from drumbeat.store.interface import JoinRequest, Store, WorkerChange

__all__ = ["DrainResult", "Measurement", "ResourceProbe", "WorkerLifecycle", "Workload", "WorkloadFigures"]

log = logging.getLogger(__name__)

_OVERTIME = timedelta(seconds=1)  #: added to the drain limit, so that a workload that ends just in time is not cut off
_LEAVE_TRIES = 3
_LEAVE_PAUSE = timedelta(seconds=1)


class WorkerLifecycle:
    """One worker, from joining its pool to leaving it.

    A separate task sends heartbeats in every state, receives events, and makes all store calls except those of the workload.
    The main task moves from state to state and runs the workload, and never waits for the store: during an outage the work
    continues, until the store has been silent for so long that this worker could soon be marked lost.
    """

    def __init__(
        self,
        store: Store,
        identity: JoinRequest,
        thresholds: Thresholds,
        workload: Workload,
        *,
        clock: Clock,
        probe: ResourceProbe | None = None,
        gated: bool = True,
    ) -> None:
        """``gated``: the worker waits for a START event before it begins its work."""
        self._store = store
        self._identity = identity
        self._thresholds = thresholds
        self._workload = workload
        self._clock = clock
        self._shutdown = shutdown = Shutdown()
        self._connection = connection = StoreConnection(clock, thresholds)
        samples = Sampling(workload, clock)
        self._handler = EventHandler(
            identity,
            thresholds,
            workload,
            clock=clock,
            probe=probe,
            gated=gated,
            connection=connection,
            samples=samples,
            shutdown=shutdown,
        )
        every = max(thresholds.heartbeat_every, min(store.traits.shortest_beat, thresholds.stale_after / 2))
        self._heartbeat = HeartbeatLoop(
            store, identity, every, self._handler, clock=clock, connection=connection, samples=samples
        )
        if isinstance(workload, WakesHeartbeat):
            workload.on_possible_instructions(self._heartbeat.beat_now)
        self._meta: Mapping[str, Any] = {}
        self.work_is_done = False  #: whether it left because its work is finished, and not because of a stop
        self.is_replaced = False  #: whether it ends because its row is gone, or is that of another process

    async def run(self) -> ExitCode:
        """Run the worker until it is stopped, has no work left, or fails. Returns the exit code of the process."""
        if await self._join():
            async with plain_task_group() as group:
                background = [group.create_task(self._run_heartbeat()), group.create_task(self._handler.run_scheduled())]
                await self._run_workload()
                for task in background:
                    task.cancel()
            await self._leave()
        return self._shutdown.end.code

    def request_stop(self, reason: str) -> None:
        """Let the worker finish its work and leave; on a second request it leaves at once."""
        if self._shutdown.over.is_set():
            self._shutdown.hurry.set()
        self._shutdown.decide(self._clean_end(reason))

    async def leave_at_once(self, reason: str) -> None:
        """Record the worker's end after ``run`` was cancelled; otherwise its row would look live until it is marked lost."""
        self._shutdown.decide(EndDecision(code=ExitCode.CLEAN, reason=reason))
        await self._leave()

    def _clean_end(self, reason: str) -> EndDecision:
        return EndDecision(code=ExitCode.CLEAN, reason=reason, drain=self._thresholds.drain_within)

    async def _join(self) -> bool:
        try:
            row = await race(self._shutdown.over.wait(), self._heartbeat.join())
        except LostRace:
            return False
        except StoreUnavailable as exc:
            self._shutdown.decide(EndDecision(code=ExitCode.STORE_LOST, reason=f"cannot join: {exc}"))
            return False
        except DrumbeatError as exc:
            self._shutdown.decide(EndDecision(code=ExitCode.CONFIGURATION, reason=f"cannot join: {exc}"))
            return False
        except Exception as exc:
            log.exception("failed to join the pool; this worker ends")
            self._shutdown.decide(EndDecision(code=ExitCode.FATAL, reason=f"cannot join: {describe(exc)}"))
            return False
        self._handler.remember_row(row)
        self._meta = row.meta
        return True

    async def _run_workload(self) -> None:
        try:
            if await self._prepare() and await self._wait_for_start():
                await self._work()
        except Exception as exc:
            log.exception("the workload failed; this worker ends")
            self._shutdown.decide(EndDecision(code=ExitCode.FATAL, reason=describe(exc)))
        finally:
            await self._close()

    async def _prepare(self) -> bool:
        try:
            await race(self._shutdown.over.wait(), self._workload.prepare())
        except LostRace:
            return False
        except (InvalidInput, NotFound, MissingExtra) as exc:
            self._shutdown.decide(EndDecision(code=ExitCode.CONFIGURATION, reason=str(exc)))
            return False
        except StoreUnavailable as exc:
            self._shutdown.decide(EndDecision(code=ExitCode.STORE_LOST, reason=str(exc)))
            return False
        if isinstance(self._workload, DescribesWorker):
            self._meta = {**self._meta, **self._workload.worker_meta}
        self._heartbeat.queue_move(WorkerStatus.WAITING, "ready", WorkerChange(meta=self._meta) if self._meta else None)
        return not self._shutdown.over.is_set()

    async def _wait_for_start(self) -> bool:
        within = self._thresholds.start_within
        try:
            opened = await race(self._shutdown.over.wait(), pause(self._clock, within, self._handler.gate))
        except LostRace:
            return False
        if not opened:
            reason = f"expected START within {within.total_seconds():g} s of being ready, got none"
            self._shutdown.decide(EndDecision(code=ExitCode.START_TIMEOUT, reason=reason))
        return not self._shutdown.over.is_set()

    async def _work(self) -> None:
        try:
            await race(self._shutdown.hurry.wait(), self._handler.start_work())
        except LostRace:
            return
        self._heartbeat.queue_move(WorkerStatus.ACTIVE, "started")
        await self._wait_for_end()
        self._handler.stop_work()
        if (within := self._shutdown.end.drain) is not None:
            await self._drain(within)

    async def _wait_for_end(self) -> None:
        try:
            await race(self._shutdown.over.wait(), self._workload.ended())
        except LostRace:
            return
        self.work_is_done = True
        self._shutdown.decide(self._clean_end("the work is done"))

    async def _drain(self, within: timedelta) -> None:
        self._heartbeat.queue_move(WorkerStatus.DRAINING, self._shutdown.end.reason)
        result = await self._drained(within)
        self._handler.take_last_sample()
        if result.timed_out:
            how = "drain_cut_short" if self._shutdown.hurry.is_set() else "drain_timed_out"
            log.warning("drain result: %s, with %d jobs or operations unfinished", how, result.abandoned)
            self._meta = {**self._meta, how: True, "abandoned": result.abandoned}

    async def _drained(self, within: timedelta) -> DrainResult:
        drain = race(self._shutdown.hurry.wait(), self._workload.drain(within))
        try:
            return await race(self._clock.sleep(within + _OVERTIME), drain)
        except LostRace:
            return DrainResult(timed_out=True, abandoned=self._workload.figures.active)

    async def _close(self) -> None:
        try:
            await race(self._close_timeout(), self._workload.close())
        except LostRace:
            log.warning("the workload did not close in time; this worker ends anyway")
        except Exception:
            log.exception("the workload failed to close; this worker ends anyway")

    async def _close_timeout(self) -> None:
        """Sleep for the time limit of closing the workload: ``drain_within``; after ``hurry`` is set, only ``call_timeout``."""
        if await pause(self._clock, self._thresholds.drain_within, self._shutdown.hurry):
            await self._clock.sleep(self._connection.call_timeout)

    async def _leave(self) -> None:
        """Record the worker's end, in up to ``_LEAVE_TRIES`` tries; the process ends in any case."""
        end = self._shutdown.end
        error = None if end.code is ExitCode.CLEAN else truncate(end.reason, LONGEST_ERROR)
        change = WorkerChange(exit_code=end.code, error=error, meta=self._meta)
        for tries_left in reversed(range(_LEAVE_TRIES)):
            try:
                await self._heartbeat.leave(end.status, end.reason, change)
                return
            except WorkerGone as exc:
                log.info("this worker's end is already recorded: %s", exc)
                return
            except Exception as exc:
                is_last = not tries_left or self._connection.lost or self._shutdown.hurry.is_set()
                if is_last or not isinstance(exc, StoreUnavailable):
                    log.warning(
                        "failed to record that this worker left: %s; it is shown as live until a controller marks it as lost",
                        describe(exc),
                    )
                    return
            await pause(self._clock, _LEAVE_PAUSE, self._shutdown.hurry)

    async def _run_heartbeat(self) -> None:
        try:
            await self._heartbeat.run()
        except WorkerGone as exc:
            self._shutdown.decide(EndDecision(code=await self._why_gone(), reason=str(exc), urgent=True))
        except StoreUnavailable as exc:
            reason = f"the store has not answered for {self._connection.silence.total_seconds():.0f} s: {exc}"
            self._shutdown.decide(EndDecision(code=ExitCode.STORE_LOST, reason=reason, urgent=True))
        except Exception as exc:
            log.exception("the heartbeat task failed; this worker ends")
            self._shutdown.decide(EndDecision(code=ExitCode.FATAL, reason=describe(exc), urgent=True))

    async def _why_gone(self) -> ExitCode:
        """Return the exit code after the store rejected this worker: FATAL, or STORE_LOST if its row is lost or unreadable."""
        me = self._identity
        try:
            row = await with_timeout(
                self._clock, self._connection.call_timeout, self._store.workers.get(me.pool_id, me.worker_id)
            )
        except DrumbeatError as exc:
            self.is_replaced = isinstance(exc, NotFound)
            return ExitCode.STORE_LOST
        self.is_replaced = row.instance != me.instance
        return ExitCode.STORE_LOST if row.status is WorkerStatus.LOST else ExitCode.FATAL
