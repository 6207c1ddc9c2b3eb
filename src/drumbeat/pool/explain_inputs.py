"""Reads the inputs of ``explain`` from the store."""

from drumbeat.core.job import COUNTED, Job, JobId, JobStatus
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.pool.breaker import breaker_message
from drumbeat.pool.explain import MOST_PARENTS, ExplainInputs
from drumbeat.pool.model import PoolPolicy
from drumbeat.pool.observe import read_not_loaded, read_streak
from drumbeat.pool.schedules.model import schedule_names, tick_of
from drumbeat.pool.schedules.service import schedule_status
from drumbeat.pool.worker.options import plan_of
from drumbeat.store.interface import Store


async def read_explain_inputs(store: Store, pool: PoolRow, job: Job) -> ExplainInputs:
    """Read what ``explain`` needs to know about a job. Jobs ahead of it are counted up to COUNTED."""
    pending = job.status is JobStatus.PENDING
    ahead = await store.jobs.ahead(job, COUNTED) if pending else 0
    streak = await read_streak(store, pool.pool_id, PoolPolicy.from_json(pool.policy).mended_at)
    return ExplainInputs(
        now=await store.now(),
        pool=pool,
        job=job,
        workers=tuple(await store.workers.list(pool.pool_id, live=True)),
        attempts=tuple(await store.jobs.attempts(job.job_id)),
        group_held=await _held(store, job) if pending else (),
        group_recent=await _recent(store, job) if pending else 0,
        ahead=ahead,
        ahead_is_more=ahead >= COUNTED,
        types=plan_of(pool).types,
        not_loaded=(await read_not_loaded(store, pool)).get(job.type) if pending else None,
        failure=streak.error,
        triggered=await _is_triggered(store, pool.pool_id),
        parents=tuple(await store.jobs.parents(job.job_id, MOST_PARENTS)) if job.status is JobStatus.WAITING else (),
        trouble=breaker_message(streak),
        schedule=await _schedule(store, pool, job),
        steps=tuple(await store.job_steps.list(job.job_id)) if job.has_steps else (),
    )


async def _held(store: Store, job: Job) -> tuple[JobId, ...]:
    """Return the ids of claimed jobs in the group of this job."""
    if job.group is None:
        return ()
    held = await store.jobs.list(job.pool_id, statuses=[JobStatus.CLAIMED], group=job.group, limit=COUNTED)
    return tuple(each.job_id for each in held)


async def _recent(store: Store, job: Job) -> int:
    """Count the claims in the group of this job during the last period of its rate limit."""
    if job.group is None or job.group_rate is None:
        return 0
    return await store.jobs.recent_claims(job.pool_id, job.group, job.group_rate.per)


async def _is_triggered(store: Store, pool_id: PoolId) -> bool:
    """Whether a checker has ever run for this pool."""
    return await store.beats.last(pool_id) is not None


async def _schedule(store: Store, pool: PoolRow, job: Job) -> tuple[str, ...]:
    """Return lines about the schedule that pushed this job; none if a schedule did not push it, or was removed."""
    found = tick_of(job.job_id, pool.pool_id)
    if found is None or found[0] not in schedule_names(pool):
        return ()
    name, tick = found
    return (
        f"it is the tick {tick:%Y-%m-%d %H:%M:%S} UTC of schedule {name}",
        *(await schedule_status(store, pool, name)).lines,
    )
