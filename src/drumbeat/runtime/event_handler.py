"""A worker's conduct: what it hears from the store, what it makes its workload do, what it says of itself."""

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
from drumbeat.runtime import instructions as told
from drumbeat.runtime.instructions import Me, WorkerInstructions
from drumbeat.runtime.probe import Reading
from drumbeat.runtime.sampling import Sampling
from drumbeat.runtime.shutdown import End, Shutdown
from drumbeat.runtime.store_connection import StoreConnection
from drumbeat.runtime.timeouts import cut, describe, pause
from drumbeat.runtime.workload import Workload
from drumbeat.store.interface import Heartbeat, HeartbeatReply, Joining

log = logging.getLogger(__name__)

RECONCILE_EVERY = timedelta(seconds=5)
LONGEST_ERROR = 1000
_LONG = timedelta(days=1)


class Senses(Protocol):
    """How a worker feels its machine; ``Probe`` is the real one."""

    def read(self) -> Reading: ...


class EventHandler:
    """Between the pulse and the workload. Orders are remembered from the first event on, and applied while there is work."""

    def __init__(
        self,
        identity: Joining,
        thresholds: Thresholds,
        workload: Workload,
        *,
        clock: Clock,
        probe: Senses | None,
        gated: bool,
        line: StoreConnection,
        samples: Sampling,
        ending: Shutdown,
    ) -> None:
        self._identity = identity
        self._thresholds = thresholds
        self._workload = workload
        self._clock = clock
        self._probe = probe
        self._gated = gated
        self._line = line
        self._samples = samples
        self._ending = ending
        self.gate = asyncio.Event()  #: open: the work may begin
        self._wanted = WorkerInstructions()
        self._applied = WorkerInstructions()
        self._orders: HeartbeatReply | None = None
        self._heard_at = timedelta()
        self._born: datetime | None = None
        self._reading: Reading | None = None
        self._reconciled = timedelta()
        self._working = False
        self._agenda = asyncio.Event()

    def be_born(self, row: Worker) -> None:
        self._born = row.created_at

    async def start_work(self) -> None:
        """Begin with the phase and the target that count by now, and follow every order from here on."""
        if self._orders is not None:
            self._wanted = told.at_start(self._wanted, self._orders)
        self._applied = self._wanted
        await self._workload.start(self._wanted.phase, self._wanted.target, self._wanted.qps)
        self._samples.begin()
        self._reconciled = self._clock.elapsed()
        self._working = True
        self._apply()

    def stop_work(self) -> None:
        """Follow no more orders. The running interval ends; what is counted later is for ``take_last_sample``."""
        self.take_sample()
        self._working = False

    def take_last_sample(self) -> None:
        """What was counted while draining: errors too, but no rate to be judged by."""
        self._samples.take(self._applied.phase, self._applied.target, self._reading, {"draining": True})

    def heartbeat(self, sample: Sample | None) -> Heartbeat:
        figures, reading, me = self._workload.figures, self._reading, self._identity
        return Heartbeat(
            pool_id=me.pool_id,
            worker_id=me.worker_id,
            instance=me.instance,
            read_to=self._wanted.read_to,
            phase=self._applied.phase,
            applied_target=figures.applied_target,
            active=figures.active,
            operations=figures.operations,
            errors=figures.errors,
            error=None if figures.error is None else cut(figures.error, LONGEST_ERROR),
            cpu_percent=reading.cpu_percent if reading else None,
            memory_percent=reading.memory_percent if reading else None,
            gpu=reading.devices if reading else None,
            sample=sample,
        )

    def take_sample(self) -> None:
        self._feel()
        if self._working:
            self._samples.take(self._applied.phase, self._applied.target, self._reading)

    def _feel(self) -> None:
        try:
            self._reading = self._probe.read() if self._probe else None
        except Exception:
            log.debug("this machine could not be read", exc_info=True)

    def hear(self, orders: HeartbeatReply) -> None:
        self._orders, self._heard_at = orders, self._clock.elapsed()
        born = self._born if orders.run_status is None else None
        me = Me(worker_id=self._identity.worker_id, slot=self._identity.slot, born=born)
        for event in orders.events:
            self._obey(event, me, orders.now)
        self._wanted = told.read_to(self._wanted, orders.read_to)
        if not orders.more:
            self._weigh(orders)

    def _obey(self, event: Event, me: Me, now: datetime) -> None:
        try:
            self._want(told.obey(self._wanted, event, me, now))
        except InvalidInput as exc:
            log.warning("%s", exc)
            self._wanted = told.skip(self._wanted, event)

    def _weigh(self, orders: HeartbeatReply) -> None:
        """With every event read: is it over, has something been missed, may it begin?"""
        if self._ending.over.is_set():
            return
        if end := self._why_end(orders):
            self._ending.decide(end)
        elif self._working:
            self._reconcile(orders)
        elif not self._gated or told.may_start(self._wanted, orders):
            self.gate.set()

    def _why_end(self, orders: HeartbeatReply) -> End | None:
        usual = self._thresholds.drain_within
        if stop := told.why_stop(self._wanted, orders):
            return End(code=ExitCode.CLEAN, reason=stop.reason, drain=usual if stop.within is None else stop.within)
        if told.controller_gone(orders, self._line.in_contact, self._thresholds):
            reason = f"no controller has renewed its lease since it ran out at {orders.controller_until}"
            return End(code=ExitCode.CONTROLLER_GONE, reason=reason, drain=usual)
        return None

    def _reconcile(self, orders: HeartbeatReply) -> None:
        now = self._clock.elapsed()
        if now - self._reconciled >= RECONCILE_EVERY:
            self._reconciled = now
            self._want(told.reconcile(self._wanted, orders))

    def _want(self, wanted: WorkerInstructions) -> None:
        if wanted.later != self._wanted.later:
            self._agenda.set()
        self._wanted = wanted
        if self._working:
            self._apply()

    def _apply(self) -> None:
        before, self._applied = self._applied, self._wanted
        try:
            self._apply_phase(before)
            self._apply_target(before)
        except Exception as exc:
            log.exception("the workload failed")
            self._ending.decide(End(code=ExitCode.FATAL, reason=describe(exc)))

    def _apply_phase(self, before: WorkerInstructions) -> None:
        phase = self._wanted.phase
        if phase is None or phase == before.phase:
            return
        log.info("phase: %s, after %s", phase, before.phase)
        self._samples.take(before.phase, before.target, self._reading)
        self._workload.set_phase(phase)

    def _apply_target(self, before: WorkerInstructions) -> None:
        wanted = self._wanted
        if (wanted.target, wanted.target_seq, wanted.qps) == (before.target, before.target_seq, before.qps):
            return
        log.info(
            "target: %d, after %d, within %g s, at %s/s",
            wanted.target,
            before.target,
            wanted.ramp.total_seconds(),
            "any" if wanted.qps is None else wanted.qps,
        )
        self._workload.set_target(wanted.target, wanted.ramp, wanted.qps)

    async def keep_appointments(self) -> None:
        """Obey orders that were for later, each at its moment on the store's clock. Until cancelled."""
        while True:
            await pause(self._clock, self._until_next(), self._agenda)
            self._agenda.clear()
            if self._orders is not None and self._wanted.later:
                self._want(told.come_due(self._wanted, self._store_now(self._orders)))

    def _until_next(self) -> timedelta:
        moment = told.next_appointment(self._wanted)
        if moment is None or self._orders is None:
            return _LONG
        return max(moment - self._store_now(self._orders), timedelta())

    def _store_now(self, orders: HeartbeatReply) -> datetime:
        return orders.now + (self._clock.elapsed() - self._heard_at)
