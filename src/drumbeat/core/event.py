"""Events: numbered rows in the log of a pool. Each is an instruction to workers or the record of a fact."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId


class EventType(StrEnum):
    """Types of events in a pool's log: instructions to workers, and records. Workers skip types they do not know."""

    START = "START"
    STOP = "STOP"
    SET_PHASE = "SET_PHASE"
    SET_WORKER_TARGET = "SET_WORKER_TARGET"
    SCALE_DOWN = "SCALE_DOWN"  #: record only: a guardrail lowered a target
    GUARDRAIL_WARNING = "GUARDRAIL_WARNING"  #: record only
    WORKER_MOVED = "WORKER_MOVED"  #: record only: a worker changed state
    WAITING_FOR_WORKERS = "WAITING_FOR_WORKERS"  #: record only: an engine does not start a run's workers, and why


FACTS = frozenset({EventType.SCALE_DOWN, EventType.GUARDRAIL_WARNING, EventType.WORKER_MOVED, EventType.WAITING_FOR_WORKERS})


class Scope(StrEnum):
    """Which workers an event is for."""

    RUN = "RUN"  #: every worker of the pool
    WORKER_GROUP = "WORKER_GROUP"  #: the worker in one slot (its fixed index in the pool)
    WORKER = "WORKER"  #: the worker with this id


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """An event before it is stored; the store then gives it a number."""

    type: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    scope: Scope = Scope.RUN
    worker_id: WorkerId | None = None
    slot: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(NewEvent):
    """A stored event: one row of ``events``, numbered without gaps within its pool."""

    pool_id: PoolId
    sequence_id: int
    created_at: datetime

    def is_for(self, worker_id: WorkerId, slot: int) -> bool:
        """Whether the event is an instruction that this worker must obey; False for an event that only records a fact."""
        if self.type in FACTS:
            return False
        match self.scope:
            case Scope.RUN:
                return True
            case Scope.WORKER_GROUP:
                return self.slot == slot
            case Scope.WORKER:
                return self.worker_id == worker_id


def start(expected_workers: int) -> NewEvent:
    return NewEvent(type=EventType.START, payload={"expected_workers": expected_workers})


def stop(reason: str, drain_within: timedelta | None = None, worker_id: WorkerId | None = None) -> NewEvent:
    """Make an event that tells every worker, or only ``worker_id``, to finish its work and leave."""
    payload: dict[str, Any] = {"reason": reason}
    if drain_within is not None:
        payload["drain_timeout_seconds"] = drain_within.total_seconds()
    scope = Scope.RUN if worker_id is None else Scope.WORKER
    return NewEvent(type=EventType.STOP, payload=payload, scope=scope, worker_id=worker_id)


def set_phase(phase: str, effective_at: datetime | None = None) -> NewEvent:
    payload: dict[str, Any] = {"phase": phase}
    if effective_at is not None:
        payload["effective_at"] = effective_at.isoformat()
    return NewEvent(type=EventType.SET_PHASE, payload=payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTarget:
    """The target of one worker: how many connections it should keep open, or how many jobs it should run at once."""

    connections: int
    reason: str
    ramp: timedelta = timedelta()
    qps: float | None = None  #: most operations per second; they start on schedule even if the database is slow; None: no limit
    step_id: str | None = None
    effective_at: datetime | None = None


def set_worker_target(worker_id: WorkerId, target: WorkerTarget) -> NewEvent:
    payload: dict[str, Any] = {"target_connections": target.connections, "reason": target.reason}
    if target.ramp:
        payload["ramp_seconds"] = target.ramp.total_seconds()
    if target.qps is not None:
        payload["target_qps"] = target.qps
    if target.step_id is not None:
        payload["step_id"] = target.step_id
    if target.effective_at is not None:
        payload["effective_at"] = target.effective_at.isoformat()
    return NewEvent(type=EventType.SET_WORKER_TARGET, payload=payload, scope=Scope.WORKER, worker_id=worker_id)
