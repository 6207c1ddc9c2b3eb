"""Checks a change of the interval at which a pool's workers send heartbeats."""

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
    changed, before = with_heartbeat(pool.thresholds, every), pool.thresholds.heartbeat_every
    live = await store.workers.list(pool.pool_id, live=True)
    if live and changed.stale_after <= before:
        raise Refused(
            f"{len(live)} live workers of {pool.pool_id} send a heartbeat every {before.total_seconds():g} s and would seem "
            f"silent after {changed.stale_after.total_seconds():g} s; stop them first, or choose a heartbeat above "
            f"{before.total_seconds() / 2:g} s"
        )
    return changed
