"""Records in a pool which function runs which type of job, so that any worker of the pool finds it."""

from collections.abc import Mapping
from datetime import timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.errors import AlreadyExists, NotFound
from drumbeat.pool.service import Pool
from drumbeat.pool.worker.options import WorkPlan
from drumbeat.store.interface import Store

_LEASE = timedelta(seconds=5)
_PAUSE = timedelta(milliseconds=20)


async def record_handlers(store: Store, clock: Clock, pool: Pool, handlers: Mapping[str, str], owner: str) -> None:
    """Record handlers (``module:function`` by type of job) in a pool, which is created if it does not exist.

    Handlers of other types are left as they are. Processes that do this at the same time take turns, by a lease with the
    name ``owner``, so that no handler is lost. Raises InvalidInput if it is not a pool of jobs.
    """
    if not await _missing(pool, handlers):
        return
    while (lease := await store.leases.acquire(f"{pool.pool_id}/handlers", owner, _LEASE)) is None:
        await clock.sleep(_PAUSE)
    try:
        if missing := await _missing(pool, handlers):
            await pool.update(handlers=missing)
    finally:
        await store.leases.release(lease)


async def _missing(pool: Pool, handlers: Mapping[str, str]) -> dict[str, str]:
    """Return the handlers that the pool does not have yet. A pool that does not exist is created with all of them."""
    try:
        current = (await pool.plan()).handlers
    except NotFound:
        try:
            await pool.create(WorkPlan(handlers=dict(handlers)))
        except AlreadyExists:
            return await _missing(pool, handlers)
        return {}
    return {kind: spec for kind, spec in handlers.items() if current.get(kind) != spec}
