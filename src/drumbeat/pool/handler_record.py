"""Records in a pool which function runs which type of job, so that any worker of the pool finds it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from drumbeat.core.errors import AlreadyExists, NotFound
from drumbeat.core.pool import PoolRow
from drumbeat.pool.model import TASK_HANDLER
from drumbeat.pool.service import Pool
from drumbeat.pool.worker.options import WorkPlan, plan_of
from drumbeat.store.interface import PoolChange, Store


async def record_handlers(store: Store, pool: Pool, handlers: Mapping[str, str]) -> None:
    """Record the handlers of tasks (``module:function`` by type of job) in a pool, which is created if it does not exist.

    Handlers of other types are left as they are, also those that other processes record at the same time. Raises InvalidInput
    if the pool is not a pool of jobs.
    """
    if missing := await _missing(pool, handlers):
        await pool.update(handlers=missing)
        await store.pools.change(pool.pool_id, PoolChange(policy=_marks(missing)))


async def remove_task_handlers(pool: Pool, is_gone: Callable[[str], bool]) -> Sequence[str]:
    """Remove the handlers that tasks have recorded in a pool and for which ``is_gone`` returns True. Returns their types.

    Handlers that were set by hand stay, even if they replaced a task's handler. Jobs stay too.
    """
    if gone := _gone(await pool.get(), is_gone):
        await pool.update(remove_handlers=gone)
    return gone


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
