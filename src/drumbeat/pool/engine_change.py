"""Checks whether a pool of jobs can get another engine (place where its workers run), or can be deleted."""

from collections.abc import Awaitable, Callable, Sequence

from drumbeat.core.engine import ENGINE_IN_POLICY, covers, engine_names
from drumbeat.core.errors import Refused
from drumbeat.core.pool import PoolId, PoolRow
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.store.interface import Store


async def check_engine_change(store: Store, row: PoolRow, engine: str | None) -> None:
    """Raise Refused if workers might still run at an engine that is not in the new ``engine`` (``a,b``).

    After the change, Drumbeat could not end such workers.
    """
    if engine is None or engine == row.engine:
        return
    if row.is_scaled:
        raise Refused(f"pool {row.pool_id} is a fleet; change its engine with: drumbeat fleet create {row.pool_id} --engine")
    rows = await store.workers.list_unreaped(row.pool_id)
    here = [each for each in rows if each.reaped_at is None and not each.was_refused and not covers(engine, each.provider)]
    if here:
        raise Refused(
            f"cannot change the engine of {row.pool_id} from {row.engine} to {engine} while workers may still run "
            f"({here[0].worker_id}{' and others' if len(here) > 1 else ''}); wait until they have left, run "
            f"drumbeat pool check {row.pool_id}, then change it"
        )


async def engine_settings(engine: str | None, check: Callable[[str], Awaitable[object]] | None) -> dict[str, str]:
    """Return the field that sets ``engine`` (one, or several as ``a,b``) in a pool's policy; for None, no field.

    ``check`` is called with ``engine``. Raises InvalidSettings for an invalid name, for an unknown engine, and if workers of an
    engine cannot reach the store."""
    if engine is None:
        return {}
    engine_names(engine)
    if check is not None:
        await check(engine)
    return {ENGINE_IN_POLICY: engine}


async def close_refused(store: Store, pool_id: PoolId) -> Sequence[Worker]:
    """Close the rows of workers that were never started, because their engine refused. Returns the other live workers."""
    live = await store.workers.list(pool_id, live=True)
    for row in live:
        if row.was_refused:
            await store.workers.move(row, WorkerStatus.TERMINATED, "it was not started, and is not needed any more")
    return [row for row in live if not row.was_refused]
