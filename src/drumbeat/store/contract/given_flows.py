"""Functions that set up the tests of jobs that wait for other jobs."""

from typing import Any

from drumbeat.core.job import AttemptOutcome, Job, JobId, NewJob
from drumbeat.core.pool import PoolRow
from drumbeat.store.contract.given_jobs import claimed, holder, pushed, verdict
from drumbeat.store.interface import Store


def named(name: str, *after: JobId, **options: Any) -> NewJob:
    """Build a job with a chosen id, which waits for the jobs ``after``."""
    return NewJob(payload=name, job_id=JobId(name), after=after, **options)


async def linked(store: Store, pool: PoolRow, *after: JobId, **options: Any) -> JobId:
    """Push one job that waits for the jobs ``after``, and return its id."""
    [job_id] = await pushed(store, pool, "child", after=after, **options)
    return job_id


async def ended(store: Store, pool: PoolRow, outcome: AttemptOutcome = AttemptOutcome.DONE, **options: Any) -> Job:
    """Claim the next job of the pool and report how it ended; a failure is fatal. Returns its row."""
    job = await claimed(store, pool)
    fatal = outcome is AttemptOutcome.FAILED
    settled = await store.queue.settle(holder(pool), [verdict(job, outcome, fatal=fatal, **options)])
    assert settled.stale == ()
    return await store.jobs.get(job.job_id)


async def poisoned(store: Store, pool: PoolRow) -> Job:
    return await ended(store, pool, AttemptOutcome.FAILED, error="no luck")


async def statuses(store: Store, *job_ids: JobId) -> list[str]:
    return [str((await store.jobs.get(job_id)).status) for job_id in job_ids]
