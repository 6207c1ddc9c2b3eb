"""Checks new time limits of a pool: its live workers, which keep their heartbeat interval, must not seem silent or lost."""

from datetime import timedelta

from drumbeat.core.errors import InvalidInput, Refused
from drumbeat.core.plain import short_repr
from drumbeat.core.pool import PoolRow, Thresholds, with_heartbeat
from drumbeat.store.interface import Store


async def changed_heartbeat(store: Store, pool: PoolRow, every: timedelta | None) -> Thresholds | None:
    """Return the pool's time limits for a new heartbeat interval; None if ``every`` is None.

    Raises InvalidInput, and Refused if live workers would then seem silent or lost.
    """
    if every is None:
        return None
    if not isinstance(every, timedelta):
        raise InvalidInput(f"expected heartbeat to be a timedelta, got {short_repr(every)}")
    before = pool.thresholds
    changed = with_heartbeat(before, every)
    ratio = max(before.heartbeat_every / before.stale_after, before.give_up_after / before.lost_after)
    least = (before.heartbeat_every * ratio).total_seconds()
    await check_live_workers(store, pool, changed, f", or choose a heartbeat above {least:g} s")
    return changed


async def check_live_workers(store: Store, pool: PoolRow, changed: Thresholds | None, instead: str = "") -> None:
    """Raise Refused if live workers of a pool would seem silent with new time limits, or would count as lost while they still
    try to reach the store: their jobs would run twice. Live workers keep the time limits that they have read at their start.

    ``instead``: text at the end of the message that says what the user can do instead of stopping the workers."""
    problem = None if changed is None else _problem(pool.thresholds, changed)
    if problem is None:
        return
    if live := await store.workers.list(pool.pool_id, live=True):
        raise Refused(
            f"{len(live)} live workers of {pool.pool_id} {problem} with the new time limits; stop them first{instead}"
        )


def _problem(before: Thresholds, changed: Thresholds) -> str | None:
    """Return what would be wrong with live workers, which keep the time limits ``before``; None if nothing would be."""
    if changed.stale_after <= before.heartbeat_every:
        every, silent = before.heartbeat_every.total_seconds(), changed.stale_after.total_seconds()
        return f"send a heartbeat every {every:g} s and would seem silent after {silent:g} s"
    if changed.lost_after <= before.give_up_after:
        cut_off, lost = before.give_up_after.total_seconds(), changed.lost_after.total_seconds()
        return f"run for up to {cut_off:g} s without contact to the store and would count as lost after {lost:g} s"
    return None
