"""Circuit breaker: starts workers ever less often while they fail before they run a job. Pure: no clock, no I/O."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from drumbeat.core.worker import ExitCode, Worker, WorkerStatus
from drumbeat.pool.model import Streak

TRIES = 3  #: failures in a row before others are held back
SHORTEST, LONGEST = timedelta(seconds=30), timedelta(minutes=10)
_PERMANENT = frozenset({ExitCode.CONFIGURATION, ExitCode.FATAL})  #: the next worker would fail the same way


def streak(workers: Sequence[Worker], mended_at: datetime | None = None) -> Streak:
    """The failures since a worker last ran a job or found none to run, or since ``mended_at``."""
    ended = [(row.ended_at, row) for row in workers if row.ended_at is not None and is_telling(row)]
    newest_first = sorted(ended, key=lambda each: (each[0], each[1].worker_id), reverse=True)
    since = takewhile(lambda each: mended_at is None or each[0] > mended_at, newest_first)
    failed = [*takewhile(lambda each: has_failed(each[1]), since)]
    if not failed:
        return Streak()
    return Streak(failed=len(failed), first_at=failed[-1][0], last_at=failed[0][0], error=failed[0][1].error)


def has_failed(row: Worker) -> bool:
    """Whether a worker ended with an error before it ran a job, and another would fail the same way."""
    idle = not row.operations and not row.errors
    return row.status is WorkerStatus.ERROR and idle and (row.started_at is None or row.exit_code in _PERMANENT)


def is_telling(row: Worker) -> bool:
    """Whether a worker's end says something about others. Not if it was lost, or if its provider did not start it."""
    return row.status is not WorkerStatus.LOST and "spawn_failed" not in row.meta


def held_until(found: Streak) -> datetime | None:
    """When the next worker may be tried: after as long as workers have failed already. None: none is held back."""
    if found.failed < TRIES or found.first_at is None or found.last_at is None:
        return None
    return found.last_at + min(max(found.last_at - found.first_at, SHORTEST), LONGEST)


def allowed(found: Streak, living: Sequence[Worker], now: datetime) -> int | None:
    """The limit on workers to start: 0 until ``held_until``, then 1. Without failures there is no limit: None."""
    until = held_until(found)
    if until is None:
        return None
    unproven = sum(not worker.operations for worker in living)
    return max(1 - unproven, 0) if now >= until else 0


def trouble(found: Streak) -> str | None:
    """Why workers are held back, as a message; None while they are not."""
    until = held_until(found)
    if until is None:
        return None
    why = f" ({found.error.splitlines()[0]})" if found.error else ""
    return (
        f"the last {found.failed} workers failed before they ran a job{why}; the next one is tried after "
        f"{until:%Y-%m-%d %H:%M:%S} UTC, or once the handler is fixed (drumbeat pool create --update, drumbeat pool resume)"
    )
