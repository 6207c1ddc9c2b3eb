"""One look at a pool: its rows, its instances, and since when somebody has been looking."""

from datetime import datetime, timedelta

from drumbeat.core.beat import Beat
from drumbeat.core.pool import Pool, Thresholds
from drumbeat.core.recovery import Seen, Sight
from drumbeat.spawn.interface import InstanceState, Spawner
from drumbeat.store.interface import Store


async def look(store: Store, spawner: Spawner, pool: Pool, gap: timedelta, last: Beat | None = None) -> Sight:
    """The pool as it is now. Instances are listed before rows are read: a row comes before its instance.

    Whoever has read the last beat that saw the pool (``last_look``) hands it over, and it is not read again.
    """
    instances = await spawner.list(pool.pool_id)
    now = await store.now()
    last = last or await last_look(store, pool, now)
    return Sight(
        now=now,
        looking_since=looking_since(last, now, gap, pool.thresholds),
        thresholds=pool.thresholds,
        workers=tuple(await store.workers.list(pool.pool_id)),
        instances=tuple(
            Seen(
                worker_id=instance.worker_id,
                running=instance.state is not InstanceState.EXITED,
                exit_code=instance.exit_code,
            )
            for instance in instances
        ),
    )


async def last_look(store: Store, pool: Pool, now: datetime) -> Beat | None:
    """The last beat that saw the pool. One that failed to see it ends nothing, if another saw it shortly before."""
    last = await store.beats.last(pool.pool_id)
    if last is None or last.view is not None:
        return last
    recent = await store.beats.list(pool.pool_id, since=now - pool.thresholds.stale_after)
    return next((beat for beat in reversed(recent) if beat.view is not None), None)


def looking_since(last: Beat | None, now: datetime, gap: timedelta, thresholds: Thresholds) -> datetime:
    """Since when some controller has seen this pool without a break.

    The last beat's row says when anyone last saw it, and since when that one had. If that is longer ago than a worker may be
    silent, or this controller was cut off itself, then workers may have been cut off with us: all get a fresh start.
    """
    if last is None or last.view is None:
        return now
    if max(now - last.at, gap) > thresholds.stale_after:
        return now
    return datetime.fromisoformat(last.view["looking_since"])
