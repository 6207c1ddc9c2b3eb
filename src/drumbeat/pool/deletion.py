"""Deletes a pool of jobs with everything in it."""

from collections.abc import Callable
from datetime import timedelta

from drumbeat.core.errors import Refused
from drumbeat.core.job import JobCounts
from drumbeat.core.pool import PoolRow
from drumbeat.core.retention import Prunable
from drumbeat.pool.engine_change import close_refused
from drumbeat.pool.large.sweep import delete_pool_values
from drumbeat.pool.large.values import LargeValues
from drumbeat.store.interface import Store
from drumbeat.store.pruning import prune_all


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
    await prune_all(store.upkeep, [pool_id], Prunable, timedelta(), on_progress)
    await store.pools.delete(pool_id)
    if large is not None:
        await delete_pool_values(large, pool_id)
    return counts
