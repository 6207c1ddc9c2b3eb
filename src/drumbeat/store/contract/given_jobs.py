"""Functions that set up the tests of a store's jobs: they push and claim jobs, and report their outcomes."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from drumbeat.core.job import AttemptOutcome, Job, JobId, JobOutcome, JobsWithTemplate, NewJob
from drumbeat.core.pool import PoolRow
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.store.contract.given import (
    MINUTE,
    W1,
)
from drumbeat.store.interface import ClaimRequest, Store

EVERY = 100_000  #: a limit that no store reaches, although other tests add leases to the same store


def holder(pool: PoolRow, worker_id: WorkerId = W1, instance: str = "") -> Holder:
    return Holder(pool_id=pool.pool_id, worker_id=worker_id, instance=instance)


def claiming(
    pool: PoolRow, by: WorkerId | Holder = W1, limit: int = 1, lease: timedelta = MINUTE, **options: Any
) -> ClaimRequest:
    """Build a request to claim this pool's jobs; ``by``: a worker id in this pool, or a Holder (of any pool)."""
    who = by if isinstance(by, Holder) else holder(pool, by)
    return ClaimRequest(pool_id=pool.pool_id, holder=who, limit=limit, lease=lease, **options)


async def pushed(store: Store, pool: PoolRow, *payloads: Any, **options: Any) -> list[JobId]:
    """Push one job for each payload, all with these options. Returns the job ids."""
    return [*await store.queue.push(pool.pool_id, [NewJob(payload=payload, **options) for payload in payloads])]


async def pushed_alike(store: Store, pool: PoolRow, *payloads: Any, **options: Any) -> list[JobId]:
    """Like ``pushed``, but push the jobs as one JobsWithTemplate (a template and payloads), which stores handle faster."""
    return [*await store.queue.push(pool.pool_id, JobsWithTemplate(payloads, NewJob(payload=None, **options)))]


def without_identity(job: Job) -> Job:
    return replace(job, job_id=JobId(""), created_at=None, not_before=None)


async def claimed(store: Store, pool: PoolRow, by: WorkerId | Holder = W1, **options: Any) -> Job:
    """Claim jobs, expect exactly one, and return it."""
    [job] = await store.queue.claim(claiming(pool, by, **options))
    return job


def verdict(job: Job, outcome: AttemptOutcome = AttemptOutcome.DONE, **options: Any) -> JobOutcome:
    return JobOutcome(token=job.token, outcome=outcome, **options)


async def failed(store: Store, pool: PoolRow, **options: Any) -> Job:
    """Claim the next job, report that it failed, and return its row."""
    job = await claimed(store, pool)
    await store.queue.settle(holder(pool), [verdict(job, AttemptOutcome.FAILED, error="no luck", **options)])
    return await store.jobs.get(job.job_id)
