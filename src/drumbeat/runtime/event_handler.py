"""Applies events from the store to a worker's workload, and builds the worker's heartbeats."""

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Protocol

from drumbeat.core.clock import Clock
from drumbeat.core.errors import InvalidInput
from drumbeat.core.event import Event
from drumbeat.core.pool import Thresholds
from drumbeat.core.sample import Sample
from drumbeat.core.worker import ExitCode, Worker
from drumbeat.runtime import instructions
from drumbeat.runtime.instructions import WorkerAddress, WorkerInstructions
from drumbeat.runtime.probe import Reading
from drumbeat.runtime.sampling import Sampling
from drumbeat.runtime.shutdown import EndDecision, Shutdown
from drumbeat.runtime.store_connection import StoreConnection
from drumbeat.runtime.timeouts import describe, pause, truncate
from drumbeat.runtime.workload import Workload
from drumbeat.store.interface import Heartbeat, HeartbeatReply, JoinRequest

log = logging.getLogger(__name__)

RECONCILE_EVERY = timedelta(seconds=5)
LONGEST_ERROR = 1000
_LONG = timedelta(days=1)


class ResourceProbe(Protocol):
    """Reads resource use on the worker's machine: ``Probe``, or a substitute in tests."""

    def read(self) -> Reading: ...


class EventHandler:
    """Turns the store's events into instructions, and applies these to the running workload. Builds the worker's heartbeats."""

    def __init__(
        self,
        identity: JoinRequest,
        thresholds: Thresholds,
        workload: Workload,
        *,
        clock: Clock,
        probe: ResourceProbe | None,
        gated: bool,
        connection: StoreConnection,
        samples: Sampling,
        shutdown: Shutdown,
    ) -> None:
        self._identity = identity
        self._thresholds = thresholds
        self._workload = workload
        self._clock = clock
        self._probe = probe
        self._gated = gated
        self._connection = connection
        self._samples = samples
        self._shutdown = shutdown
        self.gate = asyncio.Event()  #: set when the work may begin
        self._instructions = WorkerInstructions()
        self._applied = WorkerInstructions()
        self._reply: HeartbeatReply | None = None
        self._reply_at = timedelta()
        self._created_at: datetime | None = None
        self._reading: Reading | None = None
        self._reconciled = timedelta()
        self._working = False
        self._schedule_changed = asyncio.Event()

    def remember_row(self, row: Worker) -> None:
        self._created_at = row.created_at

    async def start_work(self) -> None:
        """Start the workload with the current phase and target, and from now on apply new instructions to it."""
        if self._reply is not None:
            self._instructions = instructions.at_start(self._instructions, self._reply)
        self._applied = self._instructions
        await self._workload.start(self._instructions.phase, self._instructions.target, self._instructions.qps)
        self._samples.begin()
        self._reconciled = self._clock.elapsed()
        self._working = True
        self._apply()

    def stop_work(self) -> None:
        """Take a sample and stop applying instructions. Operations that end later are counted by ``take_last_sample``."""
        self.take_sample()
        self._working = False

    def take_last_sample(self) -> None:
        """Take a sample of the time since ``stop_work``, marked ``draining``: results count its errors, but ignore its rate."""
        self._samples.take(self._applied.phase, self._applied.target, self._reading, {"draining": True})

    def heartbeat(self, sample: Sample | None) -> Heartbeat:
        figures, reading, me = self._workload.figures, self._reading, self._identity
        return Heartbeat(
            pool_id=me.pool_id,
            worker_id=me.worker_id,
            instance=me.instance,
            read_to=self._instructions.read_to,
            phase=self._applied.phase,
            applied_target=figures.applied_target,
            active=figures.active,
            operations=figures.operations,
            errors=figures.errors,
            error=None if figures.error is None else truncate(figures.error, LONGEST_ERROR),
            cpu_percent=reading.cpu_percent if reading else None,
            memory_percent=reading.memory_percent if reading else None,
            gpu=reading.devices if reading else None,
            sample=sample,
        )

    def take_sample(self) -> None:
        self._read_probe()
        if self._working:
            self._samples.take(self._applied.phase, self._applied.target, self._reading)

    def _read_probe(self) -> None:
        try:
            self._reading = self._probe.read() if self._probe else None
        except Exception:
            log.debug("failed to read CPU, memory or GPU use; the heartbeat has the last values", exc_info=True)

    def handle_reply(self, reply: HeartbeatReply) -> None:
        self._reply, self._reply_at = reply, self._clock.elapsed()
        who, in_run = self._identity, reply.run_status is not None
        me = WorkerAddress(worker_id=who.worker_id, slot=who.slot, created_at=self._created_at, in_run=in_run)
        for event in reply.events:
            self._obey(event, me, reply.now)
        self._instructions = instructions.mark_read_to(self._instructions, reply.read_to)
        if not reply.more:
            self._check_state(reply)

    def _obey(self, event: Event, me: WorkerAddress, now: datetime) -> None:
        try:
            self._set_instructions(instructions.apply_event(self._instructions, event, me, now))
        except InvalidInput as exc:
            log.warning(
                "worker %s of pool %s ignores an invalid event: %s", self._identity.worker_id, self._identity.pool_id, exc
            )
            self._instructions = instructions.mark_read(self._instructions, event)

    def _check_state(self, reply: HeartbeatReply) -> None:
        """After all events are read, end the worker if it must stop; else update its work, or let the work begin if allowed."""
        if self._shutdown.over.is_set():
            return
        if end := self._why_end(reply):
            self._shutdown.decide(end)
        elif self._working:
            self._reconcile(reply)
        elif not self._gated or instructions.may_start(self._instructions, reply):
            self.gate.set()

    def _why_end(self, reply: HeartbeatReply) -> EndDecision | None:
        default = self._thresholds.drain_within
        if stop := instructions.why_stop(self._instructions, reply):
            return EndDecision(code=ExitCode.CLEAN, reason=stop.reason, drain=default if stop.within is None else stop.within)
        if instructions.controller_gone(reply, self._connection.in_contact, self._thresholds):
            reason = f"no controller has renewed its lease since it expired at {reply.controller_until}"
            return EndDecision(code=ExitCode.CONTROLLER_GONE, reason=reason, drain=default)
        return None

    def _reconcile(self, reply: HeartbeatReply) -> None:
        now = self._clock.elapsed()
        if now - self._reconciled >= RECONCILE_EVERY:
            self._reconciled = now
            self._set_instructions(instructions.reconcile(self._instructions, reply))

    def _set_instructions(self, new: WorkerInstructions) -> None:
        if new.later != self._instructions.later:
            self._schedule_changed.set()
        self._instructions = new
        if self._working:
            self._apply()

    def _apply(self) -> None:
        before, self._applied = self._applied, self._instructions
        try:
            self._apply_phase(before)
            self._apply_target(before)
        except Exception as exc:
            new, me = self._applied, self._identity.worker_id
            log.exception("worker %s ends: it failed to switch to phase %s with target %s", me, new.phase, new.target)
            self._shutdown.decide(EndDecision(code=ExitCode.FATAL, reason=describe(exc)))

    def _apply_phase(self, before: WorkerInstructions) -> None:
        phase = self._instructions.phase
        if phase is None or phase == before.phase:
            return
        log.info("phase of worker %s changed from %s to %s", self._identity.worker_id, before.phase, phase)
        self._samples.take(before.phase, before.target, self._reading)
        self._workload.set_phase(phase)

    def _apply_target(self, before: WorkerInstructions) -> None:
        new = self._instructions
        if (new.target, new.target_seq, new.qps) == (before.target, before.target_seq, before.qps):
            return
        log.info(
            "target changed from %d to %d (connections or jobs at once), reached within %g s; target rate (operations/s): %s",
            before.target,
            new.target,
            new.ramp.total_seconds(),
            "no limit" if new.qps is None else new.qps,
        )
        self._workload.set_target(new.target, new.ramp, new.qps)

    async def run_scheduled(self) -> None:
        """Apply each scheduled event at its time by the store's clock, until cancelled."""
        while True:
            await pause(self._clock, self._until_next_scheduled(), self._schedule_changed)
            self._schedule_changed.clear()
            if self._reply is not None and self._instructions.later:
                self._set_instructions(instructions.apply_due(self._instructions, self._store_now(self._reply)))

    def _until_next_scheduled(self) -> timedelta:
        moment = instructions.next_scheduled(self._instructions)
        if moment is None or self._reply is None:
            return _LONG
        return max(moment - self._store_now(self._reply), timedelta())

    def _store_now(self, reply: HeartbeatReply) -> datetime:
        return reply.now + (self._clock.elapsed() - self._reply_at)
