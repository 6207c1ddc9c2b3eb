"""What a worker has been told, as one value: every event read in order, then reconciled with the rows. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.core.event import Event, EventType, Scope
from drumbeat.core.pool import Thresholds
from drumbeat.core.run import RUN_ENDED, Phase, RunStatus
from drumbeat.core.worker import WorkerId, WorkerStatus
from drumbeat.store.interface import HeartbeatReply

ENDING = RUN_ENDED | {RunStatus.STOPPING, RunStatus.CANCELLING}
_SCHEDULABLE = frozenset({EventType.SET_PHASE, EventType.SET_WORKER_TARGET})


@dataclass(frozen=True, slots=True, kw_only=True)
class Me:
    """Whose orders these are."""

    worker_id: WorkerId
    slot: int
    born: datetime | None = None  #: in a pool that outlives its workers: a STOP for all from before then was for others


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The order to leave."""

    reason: str
    within: timedelta | None = None  #: how long a drain may take; None: as long as is usual


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInstructions:
    """What the events read so far come to. Nothing is applied here: phase and target are remembered until there is work."""

    read_to: int = 0
    started: bool = False
    stop: Stop | None = None  #: the first one counts
    phase: str | None = None
    target: int = 0
    ramp: timedelta = timedelta()
    qps: float | None = None  #: at most; None: as fast as possible
    target_seq: int = 0  #: the event the target came by
    later: Sequence[Event] = ()  #: orders whose time has not come
    row_phase: str | None = None  #: the run row's phase when it was last reconciled with


def obey(wanted: WorkerInstructions, event: Event, me: Me, now: datetime) -> WorkerInstructions:
    """What is wanted once this event is read. Raises InvalidInput for an order that cannot be understood."""
    if event.sequence_id <= wanted.read_to:
        return wanted
    read = skip(wanted, event)
    if not _concerns(event, me):
        return read
    obeyed = _obeyed(read, event)
    effective_at = _effective_at(event)
    if effective_at is not None and effective_at > now:
        return replace(read, later=(*read.later, event))
    return obeyed


def skip(wanted: WorkerInstructions, event: Event) -> WorkerInstructions:
    """The same, with the event counted as read."""
    return replace(wanted, read_to=event.sequence_id)


def read_to(wanted: WorkerInstructions, sequence_id: int) -> WorkerInstructions:
    """The same, with everything up to there counted as read: what was left out was for others."""
    return replace(wanted, read_to=max(wanted.read_to, sequence_id))


def come_due(wanted: WorkerInstructions, now: datetime) -> WorkerInstructions:
    """Obey the orders whose time has come, earliest first."""
    due = [event for event in _by_time(wanted) if _time_of(event) <= now]
    for event in due:
        wanted = _obeyed(wanted, event)
    return replace(wanted, later=tuple(event for event in wanted.later if event not in due))


def next_appointment(wanted: WorkerInstructions) -> datetime | None:
    """When the next order comes due."""
    return next((_time_of(event) for event in _by_time(wanted)), None)


def at_start(wanted: WorkerInstructions, orders: HeartbeatReply) -> WorkerInstructions:
    """What to begin with: the run row's phase, so that late joiners skip warmup, and the stored target."""
    if orders.run_phase not in (None, Phase.PREPARING) and not _awaits(wanted, EventType.SET_PHASE):
        wanted = replace(wanted, phase=orders.run_phase)
    if _newest_target(wanted) == 0 or orders.target_seq > _newest_target(wanted):
        wanted = _with_stored_target(wanted, orders)
    return replace(wanted, ramp=timedelta(), row_phase=orders.run_phase)


def reconcile(wanted: WorkerInstructions, orders: HeartbeatReply) -> WorkerInstructions:
    """Catch up with rows that say more than the events did.

    The stored target counts only if it is newer than every order known, so that a ramp or an appointment is left alone. The run
    row's phase counts only when it has changed since last time: it may lag behind an event, and must not undo it.
    """
    if orders.target_seq > _newest_target(wanted):
        wanted = _with_stored_target(wanted, orders)
    news = orders.run_phase not in (None, wanted.row_phase)
    if news and not _awaits(wanted, EventType.SET_PHASE):
        wanted = replace(wanted, phase=orders.run_phase)
    return replace(wanted, row_phase=orders.run_phase)


def may_start(wanted: WorkerInstructions, orders: HeartbeatReply) -> bool:
    """Whether the gate is open."""
    return wanted.started or orders.run_status is RunStatus.RUNNING


def why_stop(wanted: WorkerInstructions, orders: HeartbeatReply) -> Stop | None:
    """The order to leave, whichever way it was given."""
    if wanted.stop is not None:
        return wanted.stop
    if orders.drain_deadline is not None:
        return Stop(reason="asked to drain", within=max(orders.drain_deadline - orders.now, timedelta()))
    if orders.status is WorkerStatus.DRAINING:
        return Stop(reason="its row says draining")
    if orders.run_status in ENDING:
        return Stop(reason=f"the run is {orders.run_status}")
    return None


def controller_gone(orders: HeartbeatReply, in_contact: timedelta, thresholds: Thresholds) -> bool:
    """Whether nobody leads any more. Only time in which this worker could see the store counts."""
    if orders.controller_until is None:
        return False
    return min(orders.now - orders.controller_until, in_contact) > thresholds.controller_gone_after


def _concerns(event: Event, me: Me) -> bool:
    if event.type == EventType.STOP and event.scope is Scope.RUN and me.born is not None:
        return event.created_at >= me.born
    return event.is_for(me.worker_id, me.slot)


def _obeyed(wanted: WorkerInstructions, event: Event) -> WorkerInstructions:
    match event.type:
        case EventType.START:
            return replace(wanted, started=True)
        case EventType.STOP:
            return replace(wanted, stop=wanted.stop or _stop(event))
        case EventType.SET_PHASE:
            return replace(wanted, phase=_phase(event))
        case EventType.SET_WORKER_TARGET:
            return _with_target(wanted, event)
        case _:
            return wanted


def _stop(event: Event) -> Stop:
    within = _duration(event, "drain_timeout_seconds")
    return Stop(reason=str(event.payload.get("reason", "STOP")), within=within)


def _with_target(wanted: WorkerInstructions, event: Event) -> WorkerInstructions:
    target, ramp, qps = _count(event, "target_connections"), _duration(event, "ramp_seconds"), _rate(event, "target_qps")
    if event.sequence_id < wanted.target_seq:
        return wanted
    return replace(wanted, target=max(target, 0), ramp=ramp or timedelta(), qps=qps, target_seq=event.sequence_id)


def _with_stored_target(wanted: WorkerInstructions, orders: HeartbeatReply) -> WorkerInstructions:
    """Rows have no rate: the last one known holds until the event itself is read."""
    return replace(wanted, target=max(orders.target, 0), ramp=timedelta(), target_seq=orders.target_seq)


def _newest_target(wanted: WorkerInstructions) -> int:
    waiting = (event.sequence_id for event in wanted.later if event.type == EventType.SET_WORKER_TARGET)
    return max(wanted.target_seq, *waiting, 0)


def _awaits(wanted: WorkerInstructions, kind: EventType) -> bool:
    return any(event.type == kind for event in wanted.later)


def _by_time(wanted: WorkerInstructions) -> Sequence[Event]:
    return sorted(wanted.later, key=lambda event: (_time_of(event), event.sequence_id))


def _time_of(event: Event) -> datetime:
    return _effective_at(event) or event.created_at


def _effective_at(event: Event) -> datetime | None:
    value = event.payload.get("effective_at") if event.type in _SCHEDULABLE else None
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise _unclear(event, "an ISO time as effective_at", value) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _phase(event: Event) -> str:
    value = event.payload.get("phase")
    if not isinstance(value, str) or not value:
        raise _unclear(event, "the name of a phase", value)
    return value


def _count(event: Event, key: str) -> int:
    value = event.payload.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise _unclear(event, f"a whole number as {key}", value)
    return int(value)


def _rate(event: Event, key: str) -> float | None:
    value = event.payload.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise _unclear(event, f"a number of at least 0 as {key}", value)
    return float(value)


def _duration(event: Event, key: str) -> timedelta | None:
    value = event.payload.get(key)
    if value is None:
        return None
    try:
        return max(timedelta(seconds=value), timedelta())
    except (TypeError, ValueError, OverflowError):
        raise _unclear(event, f"seconds as {key}", value) from None


def _unclear(event: Event, expected: str, got: Any) -> InvalidInput:
    return InvalidInput(f"event {event.sequence_id} {event.type}: expected {expected}, got {got!r}; the event is skipped")
