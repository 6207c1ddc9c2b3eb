"""Computes a worker's instructions from events and the store's rows. Functions without side effects."""

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
class WorkerAddress:
    """The worker that the instructions are for; used to pick the events that concern it."""

    worker_id: WorkerId
    slot: int
    created_at: datetime | None = None  #: when its row was created; earlier events are for an earlier worker of the same id
    in_run: bool = False  #: whether it obeys a STOP for all workers even if that is older than its row


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The instruction to finish the work and leave."""

    reason: str
    within: timedelta | None = None  #: how long the drain (finishing work) may take; None: the pool's default


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInstructions:
    """What all events read so far tell the worker to do. Instructions take effect only while the workload runs."""

    read_to: int = 0
    started: bool = False
    stop: Stop | None = None  #: set by the first STOP event
    phase: str | None = None
    target: int = 0
    ramp: timedelta = timedelta()
    qps: float | None = None  #: operations per second; None: as fast as possible
    target_seq: int = 0  #: number of the event that set the target
    later: Sequence[Event] = ()  #: scheduled events with a later time
    row_phase: str | None = None  #: the phase in the run's row when ``reconcile`` last read it


def apply_event(instructions: WorkerInstructions, event: Event, me: WorkerAddress, now: datetime) -> WorkerInstructions:
    """Apply an event to the instructions and return the result. Raises InvalidInput if its payload is invalid."""
    if event.sequence_id <= instructions.read_to:
        return instructions
    read = mark_read(instructions, event)
    if not _concerns(event, me):
        return read
    applied = _apply(read, event)
    effective_at = _effective_at(event)
    if effective_at is not None and effective_at > now:
        return replace(read, later=(*read.later, event))
    return applied


def mark_read(instructions: WorkerInstructions, event: Event) -> WorkerInstructions:
    """Mark an event as read without applying it."""
    return replace(instructions, read_to=event.sequence_id)


def mark_read_to(instructions: WorkerInstructions, sequence_id: int) -> WorkerInstructions:
    """Mark all events up to this number as read; numbers that this worker did not receive were for other workers."""
    return replace(instructions, read_to=max(instructions.read_to, sequence_id))


def apply_due(instructions: WorkerInstructions, now: datetime) -> WorkerInstructions:
    """Apply scheduled events with a time up to ``now``, earliest first."""
    due = [event for event in _by_time(instructions) if _time_of(event) <= now]
    for event in due:
        instructions = _apply(instructions, event)
    return replace(instructions, later=tuple(event for event in instructions.later if event not in due))


def next_scheduled(instructions: WorkerInstructions) -> datetime | None:
    """Return the time of the next scheduled event; None if there is none."""
    return next((_time_of(event) for event in _by_time(instructions)), None)


def at_start(instructions: WorkerInstructions, reply: HeartbeatReply) -> WorkerInstructions:
    """Return the instructions to start work with: the run's current phase (a late worker skips warmup) and newest target."""
    if reply.run_phase not in (None, Phase.PREPARING) and not _has_scheduled(instructions, EventType.SET_PHASE):
        instructions = replace(instructions, phase=reply.run_phase)
    if _newest_target(instructions) == 0 or reply.target_seq > _newest_target(instructions):
        instructions = _with_stored_target(instructions, reply)
    return replace(instructions, ramp=timedelta(), row_phase=reply.run_phase)


def reconcile(instructions: WorkerInstructions, reply: HeartbeatReply) -> WorkerInstructions:
    """Take over target and phase from the store's rows, in case an event about them was missed.

    The stored target is used only if it is newer than every known event, so that a ramp or a scheduled event is not undone.
    The phase of the run's row is used only if it changed since the last call: the row can lag behind an event.
    """
    if reply.target_seq > _newest_target(instructions):
        instructions = _with_stored_target(instructions, reply)
    phase_changed = reply.run_phase not in (None, instructions.row_phase)
    if phase_changed and not _has_scheduled(instructions, EventType.SET_PHASE):
        instructions = replace(instructions, phase=reply.run_phase)
    return replace(instructions, row_phase=reply.run_phase)


def may_start(instructions: WorkerInstructions, reply: HeartbeatReply) -> bool:
    """Whether the worker is allowed to begin its work: it has read a START event, or the run is RUNNING."""
    return instructions.started or reply.run_status is RunStatus.RUNNING


def why_stop(instructions: WorkerInstructions, reply: HeartbeatReply) -> Stop | None:
    """Return the instruction to leave, from a STOP event, the worker's row or the run's status; None if the worker can stay.

    A worker that learns late of a STOP event does not drain past the deadline in its row, as a controller ends it then.
    """
    left = None if reply.drain_deadline is None else max(reply.drain_deadline - reply.now, timedelta())
    if (stop := instructions.stop) is not None:
        limits = [limit for limit in (stop.within, left) if limit is not None]
        return replace(stop, within=min(limits, default=None))
    if left is not None:
        return Stop(reason="asked to drain", within=left)
    if reply.status is WorkerStatus.DRAINING:
        return Stop(reason="the worker's row has the status draining")
    if reply.run_status in ENDING:
        return Stop(reason=f"the run is {reply.run_status}")
    return None


def controller_gone(reply: HeartbeatReply, in_contact: timedelta, thresholds: Thresholds) -> bool:
    """Whether the pool has had no controller for too long. Only time in which the store answered this worker counts."""
    if reply.controller_until is None:
        return False
    return min(reply.now - reply.controller_until, in_contact) > thresholds.controller_gone_after


def _concerns(event: Event, me: WorkerAddress) -> bool:
    return event.is_for(me.worker_id, me.slot) and not _is_outdated(event, me)


def _is_outdated(event: Event, me: WorkerAddress) -> bool:
    """Whether the event was for workers before this one. The id of a worker whose row was deleted can be used again."""
    if me.created_at is None or event.created_at >= me.created_at:
        return False
    return event.scope is Scope.WORKER or (event.type == EventType.STOP and event.scope is Scope.RUN and not me.in_run)


def _apply(instructions: WorkerInstructions, event: Event) -> WorkerInstructions:
    match event.type:
        case EventType.START:
            return replace(instructions, started=True)
        case EventType.STOP:
            return replace(instructions, stop=instructions.stop or _stop(event))
        case EventType.SET_PHASE:
            return replace(instructions, phase=_phase(event))
        case EventType.SET_WORKER_TARGET:
            return _with_target(instructions, event)
        case _:
            return instructions


def _stop(event: Event) -> Stop:
    within = _duration(event, "drain_timeout_seconds")
    return Stop(reason=str(event.payload.get("reason", "STOP")), within=within)


def _with_target(instructions: WorkerInstructions, event: Event) -> WorkerInstructions:
    target, ramp, qps = _count(event, "target_connections"), _duration(event, "ramp_seconds"), _rate(event, "target_qps")
    if event.sequence_id < instructions.target_seq:
        return instructions
    return replace(instructions, target=max(target, 0), ramp=ramp or timedelta(), qps=qps, target_seq=event.sequence_id)


def _with_stored_target(instructions: WorkerInstructions, reply: HeartbeatReply) -> WorkerInstructions:
    """Return the instructions with the target from the worker's row. The rate (qps) stays, because the row stores no rate."""
    return replace(instructions, target=max(reply.target, 0), ramp=timedelta(), target_seq=reply.target_seq)


def _newest_target(instructions: WorkerInstructions) -> int:
    waiting = (event.sequence_id for event in instructions.later if event.type == EventType.SET_WORKER_TARGET)
    return max(instructions.target_seq, *waiting, 0)


def _has_scheduled(instructions: WorkerInstructions, kind: EventType) -> bool:
    return any(event.type == kind for event in instructions.later)


def _by_time(instructions: WorkerInstructions) -> Sequence[Event]:
    return sorted(instructions.later, key=lambda event: (_time_of(event), event.sequence_id))


def _time_of(event: Event) -> datetime:
    return _effective_at(event) or event.created_at


def _effective_at(event: Event) -> datetime | None:
    value = event.payload.get("effective_at") if event.type in _SCHEDULABLE else None
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise _invalid(event, "effective_at to be an ISO time", value) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _phase(event: Event) -> str:
    value = event.payload.get("phase")
    if not isinstance(value, str) or not value:
        raise _invalid(event, "phase to be the name of a phase", value)
    return value


def _count(event: Event, key: str) -> int:
    value = event.payload.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise _invalid(event, f"{key} to be a whole number", value)
    return int(value)


def _rate(event: Event, key: str) -> float | None:
    value = event.payload.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise _invalid(event, f"{key} to be a number of at least 0", value)
    return float(value)


def _duration(event: Event, key: str) -> timedelta | None:
    value = event.payload.get(key)
    if value is None:
        return None
    try:
        return max(timedelta(seconds=value), timedelta())
    except (TypeError, ValueError, OverflowError):
        raise _invalid(event, f"{key} to be a number of seconds", value) from None


def _invalid(event: Event, expected: str, got: Any) -> InvalidInput:
    return InvalidInput(f"event {event.sequence_id} {event.type}: expected {expected}, got {got!r}; the event is skipped")
