"""What the checker's tests begin with: workers, claims and views in a few words."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from drumbeat.core.pool import PRESETS, PoolId, PoolKind
from drumbeat.core.worker import TERMINAL, Worker, WorkerId, WorkerStatus
from drumbeat.pool.model import Claim, ListedInstance, PoolPolicy, PoolView, worker_name

POOL = PoolId("papers")
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIMITS = PRESETS[PoolKind.JOBS]
LONG_AGO = NOW - timedelta(days=1)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def name(number: int) -> WorkerId:
    return worker_name(POOL, number)


def worker(
    number: int, status: WorkerStatus = WorkerStatus.ACTIVE, silent: float = 0, ended: float = 999, **more: Any
) -> Worker:
    """A worker in the slot of its number, heard of ``silent`` seconds ago; if it has ended, then ``ended`` seconds ago."""
    joined = status is not WorkerStatus.SPAWNING
    row = Worker(
        pool_id=POOL,
        worker_id=name(number),
        slot=number,
        status=status,
        created_at=LONG_AGO if joined else NOW - seconds(silent),
        heartbeat_at=NOW - seconds(silent) if joined else None,
        heartbeat_count=7 if joined else 0,
        ended_at=NOW - seconds(ended) if status in TERMINAL else None,
    )
    return replace(row, **more)


def claim(number: int, **more: Any) -> Claim:
    return replace(Claim(worker_id=name(number), expired=False), **more)


def runs(*numbers: int) -> tuple[ListedInstance, ...]:
    return tuple(ListedInstance(worker_id=name(number), running=True) for number in numbers)


def is_over(number: int, exit_code: int | None = -9) -> ListedInstance:
    return ListedInstance(worker_id=name(number), running=False, exit_code=exit_code)


def view(
    *workers: Worker,
    ready: int = 0,
    busy: int = 0,
    cap: int = 10,
    instances: tuple[ListedInstance, ...] | None = None,
    **more: Any,
) -> PoolView:
    """A queue of plain jobs and its workers; the first ``busy`` of them hold a job each. Every live worker's instance runs."""
    seen = PoolView(
        pool_id=POOL,
        now=NOW,
        looking_since=LONG_AGO,
        paused_until=None,
        thresholds=LIMITS,
        policy=PoolPolicy(max_workers=cap),
        workers=workers,
        instances=runs(*(each.slot for each in workers if each.is_live)) if instances is None else instances,
        demand={"": ready} if ready else {},
        claims=tuple(claim(each.slot) for each in workers[:busy]),
        next_number=max((each.slot for each in workers), default=-1) + 1,
    )
    return replace(seen, **more)
