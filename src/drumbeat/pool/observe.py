"""One look at a pool and its queue, with the policy they are to be judged by."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from drumbeat.core.job import Job, JobStatus
from drumbeat.core.pool import PoolId, Thresholds
from drumbeat.core.recovery import Sight
from drumbeat.core.worker import Worker, WorkerId, name_of
from drumbeat.pool.breaker import streak
from drumbeat.pool.model import Claim, PoolPolicy, PoolView, worker_name
from drumbeat.runtime.sight import look
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import Store

_MORE = 100  #: beyond what the cap allows, this much of the queue is looked at


async def observe(
    store: Store, spawner: Spawner, pool_id: PoolId, gap: timedelta, *, lost_after: timedelta | None = None
) -> PoolView:
    """The pool as it is now. ``lost_after`` judges silence by another threshold than the pool's own.

    Silence counts from the pool's making on, whether or not anybody looked: a checker may come by once an hour, and a worker
    that was cut off for so long has left by itself (``give_up_after`` < ``lost_after``). So ``gap`` changes nothing.
    """
    pool = await store.pools.get(pool_id)
    policy = PoolPolicy.from_json(pool.policy)
    sight = await look(store, spawner, pool, gap)
    most = policy.slots + _MORE
    claimed = await store.jobs.list(pool_id, statuses=(JobStatus.CLAIMED,), limit=most)
    rows = {row.worker_id: row for row in sight.workers}
    claims = tuple(_claim(job, rows, sight.now, policy) for job in claimed)
    return PoolView(
        pool_id=pool_id,
        now=sight.now,
        looking_since=pool.created_at or sight.looking_since,
        paused_until=pool.paused_until,
        thresholds=pool.thresholds if lost_after is None else stricter(pool.thresholds, lost_after),
        policy=policy,
        workers=concerned(sight, claims),
        instances=sight.instances,
        demand=await store.jobs.demand(pool_id, most, policy.types),
        unhandled=await unhandled(store, pool_id, policy),
        claims=claims,
        more_claims=len(claimed) == most,
        next_number=next_number(pool_id, sight),
        streak=streak(sight.workers, policy.mended_at),
        is_scaled=pool.is_scaled,
    )


async def unhandled(store: Store, pool_id: PoolId, policy: PoolPolicy) -> Mapping[str, int]:
    """Ready jobs that no worker of the pool has a handler for, by type."""
    waiting = await store.jobs.by_type(pool_id) if policy.types else {}
    return {kind: jobs for kind, jobs in waiting.items() if not policy.handles(kind)}


def stricter(usual: Thresholds, lost_after: timedelta) -> Thresholds:
    """The same with another ``lost_after``; the others make room for it. Raises ValueError within a heartbeat's time."""
    stale = min(usual.stale_after, (usual.heartbeat_every + lost_after) / 2)
    give_up = min(usual.give_up_after, stale)
    return Thresholds(
        heartbeat_every=usual.heartbeat_every,
        stale_after=stale,
        lost_after=lost_after,
        give_up_after=give_up,
        start_within=usual.start_within,
        drain_within=usual.drain_within,
        controller_gone_after=usual.controller_gone_after,
    )


def concerned(sight: Sight, claims: Sequence[Claim]) -> tuple[Worker, ...]:
    """Of thousands that came and went, those something may be to be done about."""
    named = {claim.worker_id for claim in claims} | {seen.worker_id for seen in sight.instances}
    return tuple(worker for worker in sight.workers if worker.is_live or worker.reaped_at is None or worker.worker_id in named)


def next_number(pool_id: PoolId, sight: Sight) -> int:
    """One above every number a worker or an instance of this pool is named by."""
    names = {*(worker.worker_id for worker in sight.workers), *(seen.worker_id for seen in sight.instances)}
    prefix = worker_name(pool_id, 0).removesuffix("0")
    numbers = [int(number) for name in names if (number := name.removeprefix(prefix)).isdecimal()]
    return max(numbers, default=-1) + 1


def _claim(job: Job, rows: Mapping[WorkerId, Worker], now: datetime, policy: PoolPolicy) -> Claim:
    if job.holder is None:
        raise ValueError(f"job {job.job_id} is claimed by nobody; expected the store to name its holder")
    return Claim(
        worker_id=name_of(job.holder, job.pool_id, rows),
        expired=job.lease_until is not None and job.lease_until <= now,
        extended=job.lease_extended,
        capability=job.capability or "",
        comes_back=(job.begun_at is None or job.crashes + job.suspicions + 1 < job.max_crashes) and policy.handles(job.type),
    )
