"""One look at a pool: its rows, its instances, and since when somebody has been looking."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.beat import Beat
from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import SpawnError
from drumbeat.core.pool import PoolRow, Thresholds
from drumbeat.core.recovery import ListedInstance, PoolSnapshot
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.runtime.timeouts import LostRace, race
from drumbeat.spawn.interface import Instance, InstanceState, Spawner
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

LIST_WITHIN = timedelta(seconds=20)  #: so long a provider has to list its instances


async def take_snapshot(
    store: Store,
    spawner: Spawner,
    pool: PoolRow,
    gap: timedelta,
    last: Beat | None = None,
    *,
    usual: timedelta = timedelta(),
    unlisted_too: bool = False,
    gone_since: datetime | None = None,
    unreaped_only: bool = False,
    clock: Clock | None = None,
) -> PoolSnapshot:
    """The pool as it is now. Instances are listed before rows are read: a row comes before its instance.

    Whoever has read the last beat that saw the pool (``last_look``) hands it over, and it is not read again. ``usual`` is how
    far apart looks at this pool are. A provider that gives no list in time raises SpawnError; with ``unlisted_too`` the look
    goes on without one, and is ``partial``. Rows of workers that were gone before ``gone_since`` are not read; with
    ``unreaped_only`` none of workers that are known to be gone, unless the provider lists an instance of them.
    """
    instances, unlisted = await _listed(spawner, pool, clock or SystemClock(), unlisted_too=unlisted_too)
    now = await store.now()
    last = last or await last_look(store, pool)
    if unreaped_only:
        workers = await store.workers.list_unreaped(pool.pool_id, named=[each.worker_id for each in instances])
    else:
        workers = await store.workers.list(pool.pool_id, gone_since=gone_since)
    return PoolSnapshot(
        now=now,
        looking_since=looking_since(last, now, gap, pool.thresholds, usual),
        thresholds=pool.thresholds,
        workers=with_gpus(workers, instances),
        instances=tuple(
            ListedInstance(
                worker_id=instance.worker_id,
                running=instance.state is not InstanceState.EXITED,
                exit_code=instance.exit_code,
            )
            for instance in instances
        ),
        partial=unlisted is not None,
        unlisted=unlisted,
        unnoted={} if spawner.traits.unique_names else unnoted(workers, instances),
    )


async def _listed(
    spawner: Spawner, pool: PoolRow, clock: Clock, *, unlisted_too: bool
) -> tuple[Sequence[Instance], str | None]:
    """The instances; or none, and why there is no list."""
    try:
        return await _in_time(spawner, pool, clock), None
    except SpawnError as exc:
        if not unlisted_too:
            raise
        log.warning("the instances of %s could not be listed; going by the rows alone: %s", pool.pool_id, exc)
        return (), str(exc) or type(exc).__name__


async def _in_time(spawner: Spawner, pool: PoolRow, clock: Clock) -> Sequence[Instance]:
    """The list, well before the beat's own patience ends: rows can be judged without it."""
    try:
        return await race(clock.sleep(LIST_WITHIN), _list(spawner, pool))
    except LostRace:
        raise SpawnError(
            f"expected the instances of {pool.pool_id} within {LIST_WITHIN.total_seconds():g} s, got no answer"
        ) from None


async def _list(spawner: Spawner, pool: PoolRow) -> Sequence[Instance]:
    return await spawner.list(pool.pool_id)


def unnoted(workers: Sequence[Worker], instances: Sequence[Instance]) -> Mapping[WorkerId, str]:
    """Instances that are there, of workers that have not joined and whose rows do not know of them."""
    spawning = {row.worker_id for row in workers if row.status is WorkerStatus.SPAWNING and not row.provider_ref}
    there = [each for each in instances if each.state is not InstanceState.EXITED] if spawning else []
    return {each.worker_id: each.ref for each in there if each.worker_id in spawning}


def with_gpus(workers: Sequence[Worker], instances: Sequence[Instance]) -> tuple[Worker, ...]:
    """The rows; those that say nothing of a GPU with what their provider says of it."""
    told = {each.worker_id: gpu for each in instances if (gpu := _gpu(each)) is not None}
    if not told:
        return tuple(workers)
    return tuple(
        replace(row, gpu={**told[row.worker_id], **(row.gpu or {})}) if row.worker_id in told and not row.tells_of_gpu else row
        for row in workers
    )


def _gpu(instance: Instance) -> Mapping[str, Any] | None:
    """The memory of an instance's GPUs, all together, as a worker's own probe would name it."""
    gpus = [each for each in instance.meta.get("gpus", ()) if each.get("memory_total_gb")]
    if not gpus:
        return None
    used = [each["memory_used_gb"] for each in gpus if each.get("memory_used_gb") is not None]
    return {"memory_total_mb": sum(each["memory_total_gb"] for each in gpus) * 1024, "memory_used_mb": sum(used) * 1024}


async def last_look(store: Store, pool: PoolRow) -> Beat | None:
    """The last beat that saw the pool. One that failed to see it ends nothing, nor does a checker's in a fleet's pool."""
    return await store.beats.last(pool.pool_id, seen=True)


def looking_since(
    last: Beat | None, now: datetime, gap: timedelta, thresholds: Thresholds, usual: timedelta = timedelta()
) -> datetime:
    """Since when some controller has seen this pool without a break.

    The last beat's row says when anyone last saw it, and since when that one had. If that is longer ago than a worker may be
    silent, or this controller was cut off itself, then workers may have been cut off with us: all get a fresh start. Looks
    that are usually far apart (``usual``) are no break: one that is late by no more than that goes on.
    """
    if last is None or last.view is None:
        return now
    if max(now - last.at, gap) > max(thresholds.stale_after, usual * 2):
        return now
    return datetime.fromisoformat(last.view["looking_since"])
