"""How long the results of a pool's jobs can be read: the field ``result_ttl`` of its policy."""

from collections.abc import Iterable, Sequence
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


async def without_expired(store: Store, pools: Iterable[PoolRow], jobs: Sequence[Job]) -> Sequence[Job]:
    """Return jobs of these pools; results that can no longer be read are replaced by None."""
    limited = {pool.pool_id: pool for pool in pools if result_ttl(pool) is not None}
    if not limited:
        return jobs
    now = await store.now()

    def readable(job: Job) -> Job:
        pool = limited.get(job.pool_id)
        return job if pool is None or not is_expired(pool, job, now) else replace(job, result=None)

    return [readable(job) for job in jobs]


async def without_expired_results(store: Store, jobs: Sequence[Job]) -> Sequence[Job]:
    """Return jobs of any pools; results that can no longer be read are replaced by None. Reads the rows of their pools."""
    names = {job.pool_id for job in jobs if job.result is not None}
    pools = [await store.pools.find(name) for name in names]
    return await without_expired(store, [pool for pool in pools if pool is not None], jobs)
