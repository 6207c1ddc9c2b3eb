"""Reads what ``explain`` judges by."""

from drumbeat.core.job import Job, JobId, JobStatus
from drumbeat.core.pool import Pool, PoolId
from drumbeat.pool.breaker import streak, trouble
from drumbeat.pool.explain import Facts
from drumbeat.pool.model import PoolPolicy
from drumbeat.pool.work import plan_of
from drumbeat.store.interface import Store

PAGE = 1000
PAGES = 10  #: how many pages of the queue are looked through, at the most


async def read_facts(store: Store, pool: Pool, job: Job) -> Facts:
    """Everything known about a job; a long queue is counted only so far."""
    pending = job.status is JobStatus.PENDING
    ahead, more = await _ahead(store, job) if pending else (0, False)
    group = await _group(store, job) if pending and job.group is not None else ()
    workers = await store.workers.list(pool.pool_id)
    return Facts(
        now=await store.now(),
        pool=pool,
        job=job,
        workers=tuple(worker for worker in workers if worker.is_live),
        attempts=tuple(await store.jobs.attempts(job.job_id)),
        group_held=tuple(each.job_id for each in group if each.status is JobStatus.CLAIMED),
        group_recent=await _recent(store, job, group),
        ahead=ahead,
        ahead_is_more=more,
        types=plan_of(pool).types,
        triggered=await _is_triggered(store, pool.pool_id),
        trouble=trouble(streak(workers, PoolPolicy.from_json(pool.policy).mended_at)),
    )


async def _ahead(store: Store, job: Job) -> tuple[int, bool]:
    """How many ready jobs would be claimed before this one, and whether there may be more."""
    now, count, after, passed = await store.now(), 0, None, False
    for _ in range(PAGES):
        page = await store.jobs.list(job.pool_id, statuses=[JobStatus.PENDING], after=after, limit=PAGE)
        for other in page:
            passed = passed or other.job_id == job.job_id
            due = other.not_before is None or other.not_before <= now
            count += due and other.job_id != job.job_id and (-other.priority, passed) < (-job.priority, True)
        if len(page) < PAGE:
            return count, False
        after = JobId(page[-1].job_id)
    return count, True


async def _group(store: Store, job: Job) -> tuple[Job, ...]:
    return tuple(await store.jobs.list(job.pool_id, group=job.group, limit=PAGE * PAGES))


async def _recent(store: Store, job: Job, group: tuple[Job, ...]) -> int:
    """Claims of the group within its rate's time."""
    if job.group_rate is None or not group:
        return 0
    since = await store.now() - job.group_rate.per
    return sum(1 for each in group if each.claimed_at is not None and each.claimed_at > since)


async def _is_triggered(store: Store, pool_id: PoolId) -> bool:
    """Whether a checker has ever looked after this pool."""
    return await store.beats.last(pool_id) is not None
