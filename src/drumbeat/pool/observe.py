"""Reads a pool's state, workers and queue. From these the pool's control loop (checker) decides which workers to start."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta

from drumbeat.core.beat import Beat
from drumbeat.core.job import Job, JobStatus
from drumbeat.core.not_loaded import RETRY_AFTER, types_not_loaded
from drumbeat.core.pool import PoolId, PoolRow, Thresholds
from drumbeat.core.recovery import PoolSnapshot, find_spared
from drumbeat.core.worker import Worker, WorkerId, name_of, worker_number
from drumbeat.pool.breaker import counts_for_breaker, failure_streak
from drumbeat.pool.model import Claim, FailureStreak, PoolPolicy, PoolView
from drumbeat.pool.paused_types import claimable_types
from drumbeat.runtime.snapshot import last_observation, take_snapshot
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import Store

_MORE = 100  #: how many more claimed jobs are read than the pool's workers can run at once
_FEW_ENDED, _MORE_ENDED = 5, 1000  #: ended workers to read, at first and if all of them failed


async def observe(
    store: Store,
    spawner: Spawner,
    pool_id: PoolId,
    gap: timedelta,
    *,
    lost_after: timedelta | None = None,
    on_pool: Callable[[PoolRow], Awaitable[object]] | None = None,
) -> PoolView:
    """Read the pool as it is now. ``lost_after`` replaces the pool's own time after which a silent worker counts as lost.
    ``on_pool`` is called with the pool's row before the queue is read.

    All the time since a worker's last heartbeat counts, even if no process watched the pool: a worker that cannot reach the
    store exits before it counts as lost (``give_up_after`` < ``lost_after``). Only a worker whose process is listed as running
    gets time to send a heartbeat first (see ``find_spared``), unless ``lost_after`` is given. ``gap``: time since this process
    last reached the store.
    """
    pool = await store.pools.get(pool_id)
    if on_pool is not None:
        await on_pool(pool)
    policy = PoolPolicy.from_json(pool.policy)
    last = await last_observation(store, pool)
    snapshot = await take_snapshot(store, spawner, pool, gap, last, unreaped_only=True)
    watched_since = _watched_since(snapshot, last)
    most = policy.slots + _MORE
    not_loaded = await read_not_loaded(store, pool, snapshot.now - RETRY_AFTER)
    types = claimable_types(policy.types, policy.paused.union(not_loaded))
    claimed = await store.jobs.list(pool_id, statuses=(JobStatus.CLAIMED,), limit=most)
    workers = await _with_holders(store, pool_id, snapshot.workers, claimed)
    rows = {row.worker_id: row for row in workers}
    claims = tuple(_claim(job, rows, snapshot.now, policy) for job in claimed)
    return PoolView(
        pool_id=pool_id,
        now=snapshot.now,
        looking_since=pool.created_at or snapshot.looking_since,
        paused_until=pool.paused_until,
        thresholds=pool.thresholds if lost_after is None else with_lost_after(pool.thresholds, lost_after),
        policy=policy,
        workers=workers,
        instances=snapshot.instances,
        demand={} if types is None else await store.jobs.demand(pool_id, most, *types),
        unhandled=await unhandled(store, pool_id, policy, not_loaded),
        not_loaded=not_loaded,
        claims=claims,
        more_claims=len(claimed) == most,
        next_number=next_number(pool, snapshot),
        streak=await read_streak(store, pool_id, policy.mended_at),
        is_scaled=pool.is_scaled,
        engine=spawner.traits.name,
        watched_since=watched_since,
        spared=find_spared(snapshot, watched_since, last.at if last else None) if lost_after is None else (),
    )


def _watched_since(snapshot: PoolSnapshot, last: Beat | None) -> datetime:
    """Return since when controllers watch the pool without a gap: now, after a gap, else the time stored with the last beat."""
    noted = (last.view or {}).get("watched_since") if last is not None else None
    is_after_gap = snapshot.looking_since == snapshot.now
    return snapshot.now if is_after_gap else datetime.fromisoformat(noted) if noted else snapshot.looking_since


async def unhandled(store: Store, pool_id: PoolId, policy: PoolPolicy, not_loaded: Mapping[str, str]) -> Mapping[str, int]:
    """Count ready jobs by type, for types that have no handler in the pool, or one that workers cannot load."""
    if not policy.types and not not_loaded:
        return {}
    others = [kind for kind in policy.types or policy.paused if kind not in not_loaded]  # they must hide no unhandled jobs
    waiting = await store.jobs.by_type(pool_id, without=others)
    return {kind: jobs for kind, jobs in waiting.items() if kind in not_loaded or not policy.handles(kind)}


async def read_not_loaded(store: Store, pool: PoolRow, retry_since: datetime | None = None) -> Mapping[str, str]:
    """Read the types whose handler the pool's newest workers could not load, with the cause: see ``types_not_loaded``."""
    if len(pool.policy.get("handlers") or ()) < 2:
        return {}  # a worker that cannot load its only handler ends
    rows = [*await store.workers.list(pool.pool_id, live=True), *await store.workers.list_ended(pool.pool_id, _FEW_ENDED)]
    return types_not_loaded(rows, PoolPolicy.from_json(pool.policy).mended_at, retry_since)


def with_lost_after(usual: Thresholds, lost_after: timedelta) -> Thresholds:
    """Return ``usual`` with another ``lost_after``; the limits that must be below it are lowered if needed.

    Raises ValueError if ``lost_after`` is not longer than the heartbeat interval.
    """
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


async def _with_holders(
    store: Store, pool_id: PoolId, workers: tuple[Worker, ...], claimed: Sequence[Job]
) -> tuple[Worker, ...]:
    """Add workers of this pool that hold a job but are missing in ``workers``, for example because they have just joined."""
    known = {row.worker_id for row in workers}
    holders = {job.holder.worker_id for job in claimed if job.holder and job.holder.pool_id == pool_id}
    if holders <= known:
        return workers
    others = await store.workers.list_unreaped(pool_id, named=sorted(holders - known))
    return (*workers, *(row for row in others if row.worker_id in holders - known))


def next_number(pool: PoolRow, snapshot: PoolSnapshot) -> int:
    """Return the number for the next worker's name: higher than that of any past worker or listed instance of this pool."""
    numbers = [worker_number(instance.worker_id) for instance in snapshot.instances]
    return max([pool.last_worker, *(number for number in numbers if number is not None)]) + 1


async def read_streak(store: Store, pool_id: PoolId, changed_at: datetime | None) -> FailureStreak:
    """Read how many of the newest workers failed in a row. Reads a few ended workers, and more only if all of them failed."""
    ended = await store.workers.list_ended(pool_id, _FEW_ENDED)
    found = failure_streak(ended, changed_at)
    if len(ended) < _FEW_ENDED or found.failed < sum(counts_for_breaker(row) for row in ended):
        return found
    return failure_streak(await store.workers.list_ended(pool_id, _MORE_ENDED), changed_at)


def _claim(job: Job, rows: Mapping[WorkerId, Worker], now: datetime, policy: PoolPolicy) -> Claim:
    if job.holder is None:
        raise ValueError(f"expected claimed job {job.job_id} to have a holder, got none; the row in the store is damaged")
    is_claimable = policy.handles(job.type) and job.type not in policy.paused
    return Claim(
        worker_id=name_of(job.holder, job.pool_id, rows),
        expired=job.lease_until is not None and job.lease_until <= now,
        extended=job.lease_extended,
        capability=job.capability or "",
        comes_back=(job.begun_at is None or job.crashes + job.suspicions + 1 < job.max_crashes) and is_claimable,
    )
