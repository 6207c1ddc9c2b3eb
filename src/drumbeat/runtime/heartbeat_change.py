"""Checks new time limits of a pool: its live workers, which keep their heartbeat interval, must not seem silent."""

from datetime import timedelta

from drumbeat.core.errors import InvalidInput, Refused
from drumbeat.core.plain import short_repr
from drumbeat.core.pool import PoolRow, Thresholds, with_heartbeat
from drumbeat.store.interface import Store


async def changed_heartbeat(store: Store, pool: PoolRow, every: timedelta | None) -> Thresholds | None:
    """Return the pool's time limits for a new heartbeat interval; None if ``every`` is None.

    Raises InvalidInput, and Refused if live workers would then seem silent.
    """
    if every is None:
        return None
    if not isinstance(every, timedelta):
        raise InvalidInput(f"expected heartbeat to be a timedelta, got {short_repr(every)}")
    changed = with_heartbeat(pool.thresholds, every)
    least = pool.thresholds.heartbeat_every / 2
    await check_live_workers(store, pool, changed, f", or choose a heartbeat above {least.total_seconds():g} s")
    return changed


async def check_live_workers(store: Store, pool: PoolRow, changed: Thresholds | None, instead: str = "") -> None:
    """Raise Refused if live workers of a pool would seem silent with new time limits, so that their jobs would run twice.

    ``instead``: text at the end of the message that says what the user can do instead of stopping the workers."""
    before = pool.thresholds.heartbeat_every
    if changed is None or changed.stale_after > before:
        return
    if live := await store.workers.list(pool.pool_id, live=True):
        raise Refused(
            f"{len(live)} live workers of {pool.pool_id} send a heartbeat every {before.total_seconds():g} s and would seem "
            f"silent after {changed.stale_after.total_seconds():g} s with the new time limits; stop them first{instead}"
        )
