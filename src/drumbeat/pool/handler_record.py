"""Records in a pool which function runs which type of job, so that any worker of the pool finds it."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.errors import AlreadyExists, NotFound
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.pool.model import TASK_HANDLER
from drumbeat.pool.service import Pool
from drumbeat.pool.worker.options import WorkPlan, plan_of
from drumbeat.store.interface import PoolChange, Store

_LEASE = timedelta(seconds=5)
_PAUSE = timedelta(milliseconds=20)


async def record_handlers(store: Store, clock: Clock, pool: Pool, handlers: Mapping[str, str], owner: str) -> None:
    """Record the handlers of tasks (``module:function`` by type of job) in a pool, which is created if it does not exist.

    Handlers of other types are left as they are. Processes that do this at the same time take turns, by a lease with the
    name ``owner``, so that no handler is lost. Raises InvalidInput if it is not a pool of jobs.
    """
    if not await _missing(pool, handlers):
        return
    async with _turn(store, clock, pool.pool_id, owner):
        if missing := await _missing(pool, handlers):
            await pool.update(handlers=missing)
            await store.pools.change(pool.pool_id, PoolChange(policy=_marks(missing)))


async def remove_task_handlers(
    store: Store, clock: Clock, pool: Pool, is_gone: Callable[[str], bool], owner: str
) -> Sequence[str]:
    """Remove the handlers that tasks have recorded in a pool and for which ``is_gone`` returns True. Returns their types.

    Handlers that were set by hand, also in place of a task's handler, stay. Jobs stay too.
    """
    if not _gone(await pool.get(), is_gone):
        return []
    async with _turn(store, clock, pool.pool_id, owner):
        if gone := _gone(await pool.get(), is_gone):
            await pool.update(remove_handlers=gone)
    return gone


@asynccontextmanager
async def _turn(store: Store, clock: Clock, pool_id: PoolId, owner: str) -> AsyncIterator[None]:
    """During the block, no other process changes the handlers of the pool's tasks."""
    while (lease := await store.leases.acquire(f"{pool_id}/handlers", owner, _LEASE)) is None:
        await clock.sleep(_PAUSE)
    try:
        yield
    finally:
        await store.leases.release(lease)


async def _missing(pool: Pool, handlers: Mapping[str, str]) -> dict[str, str]:
    """Return the handlers that the pool does not have yet. A pool that does not exist is created with all of them."""
    try:
        current = (await pool.plan()).handlers
    except NotFound:
        try:
            await pool.create(WorkPlan(handlers=dict(handlers)), **_marks(handlers))
        except AlreadyExists:
            return await _missing(pool, handlers)
        return {}
    return {kind: spec for kind, spec in handlers.items() if current.get(kind) != spec}


def _marks(handlers: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a pool's policy that say that tasks have recorded these handlers."""
    return {TASK_HANDLER + kind: spec for kind, spec in handlers.items()}


def _gone(row: PoolRow, is_gone: Callable[[str], bool]) -> list[str]:
    handlers = plan_of(row).handlers
    return [kind for kind, spec in handlers.items() if row.policy.get(TASK_HANDLER + kind) == spec and is_gone(spec)]
