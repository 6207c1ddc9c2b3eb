"""Circuit breaker: while new workers fail before they run a job, they are started less and less often. Pure functions."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from drumbeat.core.worker import ExitCode, Worker, WorkerStatus
from drumbeat.pool.model import FailureStreak

TRIES = 3  #: workers that fail in a row before the next one is delayed
SHORTEST, LONGEST = timedelta(seconds=30), timedelta(minutes=10)
_PERMANENT = frozenset({ExitCode.CONFIGURATION, ExitCode.FATAL})  #: exit codes after which another worker would fail too


def failure_streak(workers: Sequence[Worker], changed_at: datetime | None = None) -> FailureStreak:
    """Count how many of the newest workers failed in a row before they ran a job.

    Workers that ended before ``changed_at`` (when a user last changed or resumed the pool) are ignored.
    """
    ended = [(row.ended_at, row) for row in workers if row.ended_at is not None and counts_for_breaker(row)]
    newest_first = sorted(ended, key=lambda each: (each[0], each[1].worker_id), reverse=True)
    since = takewhile(lambda each: changed_at is None or each[0] > changed_at, newest_first)
    failed = [*takewhile(lambda each: has_failed(each[1]), since)]
    if not failed:
        return FailureStreak()
    return FailureStreak(failed=len(failed), first_at=failed[-1][0], last_at=failed[0][0], error=failed[0][1].error)


def has_failed(row: Worker) -> bool:
    """Whether a worker ended with an error before it ran a job, for a cause that would make the next worker fail too."""
    idle = not row.operations and not row.errors
    return row.status is WorkerStatus.ERROR and idle and (row.started_at is None or row.exit_code in _PERMANENT)


def counts_for_breaker(row: Worker) -> bool:
    """Whether the breaker takes this ended worker into account: not if it was lost, or if the provider failed to start it."""
    return row.status is not WorkerStatus.LOST and "spawn_failed" not in row.meta


def next_start_at(found: FailureStreak) -> datetime | None:
    """Return when the next worker can be started; None: at once. The longer workers have been failing, the longer the delay."""
    if found.failed < TRIES or found.first_at is None or found.last_at is None:
        return None
    return found.last_at + min(max(found.last_at - found.first_at, SHORTEST), LONGEST)


def start_limit(found: FailureStreak, living: Sequence[Worker], now: datetime) -> int | None:
    """Return how many workers can be started now: 0 while the breaker delays starts, then one at a time; None: no limit."""
    until = next_start_at(found)
    if until is None:
        return None
    unproven = sum(not worker.operations for worker in living)
    return max(1 - unproven, 0) if now >= until else 0


def breaker_message(found: FailureStreak) -> str | None:
    """Return a message that says why the breaker delays the start of workers; None if it does not."""
    until = next_start_at(found)
    if until is None:
        return None
    why = f" ({found.error.splitlines()[0]})" if found.error else ""
    return (
        f"the last {found.failed} workers failed before they ran a job{why}; the next one is tried after "
        f"{until:%Y-%m-%d %H:%M:%S} UTC, or once the handler is fixed (drumbeat pool create --update, drumbeat pool resume)"
    )
