"""Moves a worker to another status and appends the event that records the move."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from drumbeat.core.event import EventType, NewEvent
from drumbeat.core.worker import TERMINAL, Worker, WorkerStatus, check_move, worker_number
from drumbeat.store.interface import WorkerChange
from drumbeat.store.memory.state import MemoryState, plain

NOTHING_ELSE = WorkerChange()


def move(state: MemoryState, worker: Worker, to: WorkerStatus, reason: str, change: WorkerChange = NOTHING_ELSE) -> Worker:
    """Move a worker to the status ``to`` and append a WORKER_MOVED event. Raises IllegalMove."""
    check_move(worker.worker_id, worker.status, to)
    after = _moved(worker, to, change, state.now())
    return keep(state, after, moved_event(after, worker.status, reason, change))


def keep(state: MemoryState, worker: Worker, *events: NewEvent) -> Worker:
    """Write a worker's row and append these events to its pool's log."""
    rows = state.rows(worker.pool_id)
    state.append_events(rows, events)
    number = worker_number(worker.worker_id)
    if number is not None and number > rows.pool.last_worker:
        rows.pool = replace(rows.pool, last_worker=number)
    rows.keep_worker(worker)
    return worker


def moved_event(worker: Worker, before: WorkerStatus | None, reason: str, change: WorkerChange = NOTHING_ELSE) -> NewEvent:
    """Build the WORKER_MOVED event of a worker with its new status; ``before`` is the old one, None for a new worker."""
    payload: dict[str, Any] = {
        "worker_id": worker.worker_id,
        "worker_group_id": worker.slot,
        "from": before,
        "to": worker.status,
        "reason": reason,
    }
    if change.exit_code is not None:
        payload["exit_code"] = change.exit_code
    if change.error is not None:
        payload["error"] = change.error
    return NewEvent(type=EventType.WORKER_MOVED, payload=payload)


def _moved(worker: Worker, to: WorkerStatus, change: WorkerChange, now: datetime) -> Worker:
    return replace(
        worker,
        status=to,
        ready_at=now if to is WorkerStatus.WAITING else worker.ready_at,
        ended_at=now if to in TERMINAL else worker.ended_at,
        exit_code=worker.exit_code if change.exit_code is None else change.exit_code,
        error=worker.error if change.error is None else change.error,
        provider_ref=worker.provider_ref if change.provider_ref is None else change.provider_ref,
        meta=worker.meta if change.meta is None else {**worker.meta, **plain(change.meta)},
    )
