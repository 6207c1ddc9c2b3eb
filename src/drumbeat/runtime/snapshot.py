"""Takes a snapshot of a pool: its workers' rows, their instances, and how long controllers have watched it without a gap."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.beat import Beat
from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import InvalidInput, SpawnCause, SpawnError
from drumbeat.core.pool import PoolRow, Thresholds
from drumbeat.core.recovery import ListedInstance, PoolSnapshot
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.runtime.timeouts import LostRace, race
from drumbeat.spawn.interface import Instance, InstanceState, ReachableList, Spawner, list_reachable
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

LIST_WITHIN = timedelta(seconds=20)  #: timeout for a provider's list of instances


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
    """List the pool's instances, then read its workers' rows (in the other order, the instance of a worker that was added in
    between would seem to have no row).

    ``gap``: time since this controller last reached the store. ``last``: the last beat that observed the pool; None: it is read
    here. ``usual``: the usual time between snapshots. If the engine gives no list in time, raises SpawnError or, with
    ``unlisted_too``, returns a ``partial`` snapshot without instances. If only a host, or one engine of several, gives no
    list, the workers that might run there count as running. ``gone_since`` leaves out workers whose instance was confirmed gone
    (reaped) before that time; ``unreaped_only`` leaves out all reaped workers, except those that the provider lists.
    """
    found, unlisted = await _listed(spawner, pool, clock or SystemClock(), unlisted_too=unlisted_too)
    instances = found.instances
    now = await store.now()
    last = last or await last_observation(store, pool)
    if unreaped_only:
        workers = await store.workers.list_unreaped(pool.pool_id, named=[each.worker_id for each in instances])
    else:
        workers = await store.workers.list(pool.pool_id, gone_since=gone_since)
    return PoolSnapshot(
        now=now,
        looking_since=watched_since(last, now, gap, pool.thresholds, usual),
        thresholds=pool.thresholds,
        workers=with_gpus(workers, instances),
        instances=(
            *(
                ListedInstance(
                    worker_id=instance.worker_id,
                    running=instance.state is not InstanceState.EXITED,
                    exit_code=instance.exit_code,
                )
                for instance in instances
            ),
            *(ListedInstance(worker_id=worker_id, running=True) for worker_id in found.hidden(workers)),
        ),
        partial=unlisted is not None,
        unlisted=unlisted,
        unnoted={} if spawner.traits.unique_names else unrecorded_instances(workers, instances),
    )


async def _listed(spawner: Spawner, pool: PoolRow, clock: Clock, *, unlisted_too: bool) -> tuple[ReachableList, str | None]:
    """Return the pool's instances, and None for the error. If they cannot be listed, raises SpawnError or, with
    ``unlisted_too``, returns no instances and the text of the error."""
    try:
        found = await _list_in_time(spawner, pool, clock)
    except SpawnError as exc:
        if not unlisted_too:
            raise
        log.warning("failed to list the instances of pool %s: %s; using only its workers in the store", pool.pool_id, exc)
        return ReachableList(instances=()), str(exc) or type(exc).__name__
    if found.silent:
        log.warning(
            "the list of instances of pool %s is incomplete: %s; workers that might run there count as running",
            pool.pool_id,
            found.problem,
        )
    return found, None


async def _list_in_time(spawner: Spawner, pool: PoolRow, clock: Clock) -> ReachableList:
    """List the pool's instances. Raises SpawnError after ``LIST_WITHIN``, so that the beat can go on without it, and for
    an engine with wrong settings or credentials."""
    try:
        return await race(clock.sleep(LIST_WITHIN), list_reachable(spawner, pool.pool_id))
    except LostRace:
        raise SpawnError(
            f"expected the engine {spawner.traits.name} to list pool {pool.pool_id} in {LIST_WITHIN.total_seconds():g} s, "
            f"got no answer"
        ) from None
    except InvalidInput as exc:
        raise SpawnError(f"engine {spawner.traits.name} cannot be used: {exc}", cause=SpawnCause.AUTH) from exc


def unrecorded_instances(workers: Sequence[Worker], instances: Sequence[Instance]) -> Mapping[WorkerId, str]:
    """Return the listed instance ids of the workers that are still starting and whose rows have no instance id yet."""
    spawning = {row.worker_id for row in workers if row.status is WorkerStatus.SPAWNING and not row.provider_ref}
    running = [each for each in instances if each.state is not InstanceState.EXITED] if spawning else []
    return {each.worker_id: each.ref for each in running if each.worker_id in spawning}


def with_gpus(workers: Sequence[Worker], instances: Sequence[Instance]) -> tuple[Worker, ...]:
    """Return the workers' rows; a row without GPU data gets the GPU memory that the provider reports."""
    reported = {each.worker_id: gpu for each in instances if (gpu := _gpu(each)) is not None}
    if not reported:
        return tuple(workers)
    return tuple(
        replace(row, gpu={**reported[row.worker_id], **(row.gpu or {})})
        if row.worker_id in reported and not row.has_gpu_data
        else row
        for row in workers
    )


def _gpu(instance: Instance) -> Mapping[str, Any] | None:
    """Return the GPU memory that the provider reports for an instance, in the form used in heartbeats; None if unknown."""
    gpus = [each for each in instance.meta.get("gpus", ()) if each.get("memory_total_gb")]
    if not gpus:
        return None
    used = [each["memory_used_gb"] for each in gpus if each.get("memory_used_gb") is not None]
    return {"memory_total_mb": sum(each["memory_total_gb"] for each in gpus) * 1024, "memory_used_mb": sum(used) * 1024}


async def last_observation(store: Store, pool: PoolRow) -> Beat | None:
    """Return the last beat that stored the pool state it observed; None if there is none. Not every beat stores it."""
    return await store.beats.last(pool.pool_id, seen=True)


def watched_since(
    last: Beat | None, now: datetime, gap: timedelta, thresholds: Thresholds, usual: timedelta = timedelta()
) -> datetime:
    """Return the time since which controllers have watched this pool without a gap. A worker's silence counts only from then,
    because in a gap the store might have been out of reach for workers, too.

    After a gap, or if ``last`` is None, the result is ``now``; otherwise the time stored with the beat ``last``. It is a gap if
    no controller ran a beat, or this controller had no contact with the store (``gap``), for longer than both ``stale_after``
    and twice the usual time between snapshots (``usual``).
    """
    if last is None or last.view is None:
        return now
    if max(now - last.at, gap) > max(thresholds.stale_after, usual * 2):
        return now
    return datetime.fromisoformat(last.view["looking_since"])
