"""What the contracts of jobs begin with: jobs pushed, claimed, settled."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from drumbeat.core.job import AlikeJobs, AttemptOutcome, Job, JobId, JobOutcome, NewJob
from drumbeat.core.pool import PoolRow
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.store.contract.given import (
    MINUTE,
    W1,
)
from drumbeat.store.interface import Claiming, Store

EVERY = 100_000  #: leases to look at: a store may be shared with tests that left some


def holder(pool: PoolRow, worker_id: WorkerId = W1, instance: str = "") -> Holder:
    return Holder(pool_id=pool.pool_id, worker_id=worker_id, instance=instance)


def claiming(pool: PoolRow, by: WorkerId | Holder = W1, limit: int = 1, lease: timedelta = MINUTE, **said: Any) -> Claiming:
    """A worker of this pool, or a holder of another, asks for this pool's jobs."""
    who = by if isinstance(by, Holder) else holder(pool, by)
    return Claiming(pool_id=pool.pool_id, holder=who, limit=limit, lease=lease, **said)


async def pushed(store: Store, pool: PoolRow, *payloads: Any, **said: Any) -> list[JobId]:
    """Jobs of these payloads, alike otherwise."""
    return [*await store.queue.push(pool.pool_id, [NewJob(payload=payload, **said) for payload in payloads])]


async def pushed_alike(store: Store, pool: PoolRow, *payloads: Any, **said: Any) -> list[JobId]:
    """The same, told once for all of them."""
    return [*await store.queue.push(pool.pool_id, AlikeJobs(payloads, NewJob(payload=None, **said)))]


def but_for_its_name(job: Job) -> Job:
    return replace(job, job_id=JobId(""), created_at=None, not_before=None)


async def claimed(store: Store, pool: PoolRow, by: WorkerId | Holder = W1, **said: Any) -> Job:
    """The one job that a claim gives."""
    [job] = await store.queue.claim(claiming(pool, by, **said))
    return job


def verdict(job: Job, outcome: AttemptOutcome = AttemptOutcome.DONE, **said: Any) -> JobOutcome:
    return JobOutcome(token=job.token, outcome=outcome, **said)


async def failed(store: Store, pool: PoolRow, **said: Any) -> Job:
    """The next job after its worker claimed it and said that it failed."""
    job = await claimed(store, pool)
    await store.queue.settle(holder(pool), [verdict(job, AttemptOutcome.FAILED, error="no luck", **said)])
    return await store.jobs.get(job.job_id)
