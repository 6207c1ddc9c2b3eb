"""How long the results of a pool's jobs can be read: the field ``result_ttl`` of its policy."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import Job, JobStatus
from drumbeat.core.plain import short_repr
from drumbeat.core.pool import PoolRow
from drumbeat.pool.job_options import duration
from drumbeat.store.interface import Store

RESULT_TTL = "result_ttl"  #: key in a pool's policy: seconds after which the result of a done job reads as expired


def check_result_ttl(value: Any) -> float | None:
    """Convert a result_ttl (a timedelta, seconds or ISO 8601 text) to seconds; None: no limit. Raises InvalidInput."""
    if value is None:
        return None
    try:
        seconds = duration(value).total_seconds()
    except (TypeError, ValueError, OverflowError) as exc:
        raise InvalidInput(f"expected {RESULT_TTL} to be a timedelta or seconds, above 0, got {short_repr(value)}") from exc
    if seconds <= 0:
        raise InvalidInput(f"expected {RESULT_TTL} to be above 0, got {short_repr(value)}")
    return seconds


def result_ttl(pool: PoolRow) -> timedelta | None:
    """Return how long the pool's results can be read; None: as long as the job is kept."""
    seconds = check_result_ttl(pool.policy.get(RESULT_TTL))
    return None if seconds is None else timedelta(seconds=seconds)


def is_expired(pool: PoolRow, job: Job, now: datetime) -> bool:
    """Whether a job is done and its result can no longer be read. ``now``: the store's time."""
    ttl = result_ttl(pool)
    return ttl is not None and job.status is JobStatus.DONE and job.finished_at is not None and now >= job.finished_at + ttl


async def without_expired(store: Store, pool: PoolRow, jobs: Sequence[Job]) -> Sequence[Job]:
    """Return a pool's jobs, without results that can no longer be read."""
    if result_ttl(pool) is None:
        return jobs
    now = await store.now()
    return [replace(job, result=None) if is_expired(pool, job, now) else job for job in jobs]
