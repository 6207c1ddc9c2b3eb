"""Changes the jobs that match a filter, some hundred at a time, so that memory and transactions stay small.

Jobs are read in the order of pushing by the store's ``jobs.list``, which reads only jobs with the statuses, type and group of
the filter; the other fields are compared here. Each change is checked again by the store: a job that has changed since it was
read is counted as skipped, not forced.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from drumbeat.core.errors import NotFound
from drumbeat.core.job import Job, JobId, JobStatus
from drumbeat.core.pool import PoolId
from drumbeat.pool.job_filter import JobFilter
from drumbeat.store.interface import Store

PAGE = 500  #: jobs that are read, and changed in one transaction, at a time
EXAMPLES = 20  #: jobs of each kind that a result names

Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkChange:
    """The jobs that one chunk of an operation changed, and the jobs that their workers were asked to stop."""

    changed: Sequence[JobId]
    requested: Sequence[JobId] = ()


Change = Callable[[Sequence[Job]], Awaitable[BulkChange]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkResult:
    """The result of an operation on the jobs that match a filter. After a dry run only ``matched`` and ``examples`` are set."""

    matched: int  #: jobs that matched the filter when they were read
    examples: tuple[Job, ...]  #: the first of them, as they were before the change
    changed: int = 0
    requested: int = 0  #: running jobs whose worker was asked to stop; they end when it does
    skipped: int = 0  #: jobs that another process changed meanwhile, or that the store refused; they stay as they are
    skipped_ids: tuple[JobId, ...] = ()  #: the first of them
    dry_run: bool = False
    limited: bool = False  #: whether the limit was reached, so that more jobs may match


async def change_matching(
    store: Store,
    pool_id: PoolId,
    selected: JobFilter,
    statuses: Sequence[JobStatus],
    change: Change | None,
    *,
    limit: int | None = None,
    on_progress: Progress | None = None,
) -> BulkResult:
    """Change the matching jobs, oldest first, at most ``limit``; ``change`` of None only counts them (a dry run)."""
    matched = changed = requested = skipped = 0
    examples: list[Job] = []
    skipped_ids: list[JobId] = []
    async for jobs in matching_pages(store, pool_id, selected, statuses, limit=limit):
        matched += len(jobs)
        examples += jobs[: EXAMPLES - len(examples)]
        if change is not None:
            done = await change(jobs)
            changed, requested = changed + len(done.changed), requested + len(done.requested)
            left = {job.job_id for job in jobs}.difference(done.changed, done.requested)
            skipped += len(left)
            skipped_ids += [job.job_id for job in jobs if job.job_id in left][: EXAMPLES - len(skipped_ids)]
        if on_progress is not None:
            on_progress(matched)
    return BulkResult(
        matched=matched,
        examples=tuple(examples),
        changed=changed,
        requested=requested,
        skipped=skipped,
        skipped_ids=tuple(skipped_ids),
        dry_run=change is None,
        limited=limit is not None and matched >= limit,
    )


async def requeue_poisoned(store: Store, pool_id: PoolId) -> list[JobId]:
    """Requeue all poisoned jobs of a pool, oldest first. Returns the ids of the requeued jobs."""
    requeued: list[JobId] = []
    async for jobs in matching_pages(store, pool_id, JobFilter(), (JobStatus.POISONED,)):
        requeued += await store.jobs.requeue(pool_id, [job.job_id for job in jobs])
    return requeued


async def matching_pages(
    store: Store, pool_id: PoolId, selected: JobFilter, statuses: Sequence[JobStatus], *, limit: int | None = None
) -> AsyncIterator[list[Job]]:
    """Yield the matching jobs, oldest first, in lists of at most PAGE jobs. Jobs pushed after the start are left out."""
    now, left = await store.now(), limit
    page: Sequence[Job] = ()
    while left is None or left > 0:
        page = await _next_page(store, pool_id, selected, statuses, page)
        found = [job for job in page if not _is_newer(job, now) and selected.matches(job, now)][:left]
        left = None if left is None else left - len(found)
        if found:
            yield found
        if len(page) < PAGE or all(_is_newer(job, now) for job in page):
            return


def _is_newer(job: Job, now: datetime) -> bool:
    return job.created_at is not None and job.created_at > now


async def _next_page(
    store: Store, pool_id: PoolId, selected: JobFilter, statuses: Sequence[JobStatus], before: Sequence[Job]
) -> Sequence[Job]:
    """Read the jobs that follow the page ``before``: those after its last job or, if that was deleted meanwhile, after its last
    job that still exists. Raises NotFound if all jobs of ``before`` were deleted."""
    cursors: list[Job | None] = [*reversed(before)]
    for cursor in cursors or [None]:
        try:
            return await store.jobs.list(
                pool_id,
                statuses=statuses,
                job_type=selected.job_type,
                group=selected.group,
                after=None if cursor is None else cursor.job_id,
                limit=PAGE,
            )
        except NotFound:
            if cursor is None:
                raise
    raise NotFound(f"cannot go on after {before[-1].job_id!r}: all jobs read before were deleted meanwhile; run it again")
