"""Deletes a pool of jobs with everything in it."""

from collections.abc import Callable
from datetime import timedelta

from drumbeat.core.errors import Refused
from drumbeat.core.job import UNFINISHED, JobCounts, JobId
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.retention import Prunable
from drumbeat.pool.engine_change import close_refused
from drumbeat.pool.large.sweep import delete_pool_values, list_pool_values
from drumbeat.pool.large.values import LargeValues
from drumbeat.store.flow_rules import needed_elsewhere
from drumbeat.store.interface import Store
from drumbeat.store.pruning import prune_all

_BATCH = 500  #: jobs that are cancelled in one transaction


async def delete_pool(
    store: Store,
    pool: PoolRow,
    large: LargeValues | None,
    *,
    unfinished: bool,
    on_progress: Callable[[int], object] | None,
) -> JobCounts:
    """Delete a pool with its large values, and return the counts of the jobs it had. See ``Pool.delete``. Raises Refused."""
    pool_id, counts = pool.pool_id, await store.jobs.counts(pool.pool_id)
    if (left := counts.waiting + counts.pending + counts.claimed) and not unfinished:
        raise Refused(f"pool {pool_id!r} has {left} unfinished jobs; cancel them, or delete them too (--unfinished)")
    if live := await close_refused(store, pool_id):
        raise Refused(f"pool {pool_id!r} has {len(live)} live workers, such as {live[0].worker_id}; drain them first")
    if pool.is_scaled and (rented := await store.workers.list_unreaped(pool_id)):
        raise Refused(
            f"fleet {pool_id!r} has {len(rented)} workers that may still cost money, such as {rented[0].worker_id}; "
            f"drain them, and run: drumbeat fleet beat {pool_id}"
        )
    await _expect_unneeded(store, pool_id, cancel=unfinished and left > 0)
    values = [] if large is None else await list_pool_values(large, pool_id)
    await prune_all(store.upkeep, [pool_id], Prunable, timedelta(), on_progress)
    await store.pools.delete(pool_id, unfinished=unfinished)
    if large is not None:
        await delete_pool_values(large, values)
    return counts


async def _expect_unneeded(store: Store, pool_id: PoolId, *, cancel: bool) -> None:
    """Raise Refused if an unfinished job of another pool depends on a job of this pool. With ``cancel``, first cancel this
    pool's unfinished jobs: then each child in another pool is skipped, runs or still waits, as its ``if_failed`` says."""
    child = await store.jobs.child_elsewhere(pool_id)
    if child is not None and cancel:
        await _cancel_unfinished(store, pool_id)
        child = await store.jobs.child_elsewhere(pool_id)
    if child is not None:
        raise needed_elsewhere(pool_id, child.job_id, child.pool_id)


async def _cancel_unfinished(store: Store, pool_id: PoolId) -> None:
    last: JobId | None = None
    while page := await store.jobs.list(pool_id, statuses=sorted(UNFINISHED), after=last, limit=_BATCH):
        last = page[-1].job_id
        await store.jobs.cancel([job.job_id for job in page])
