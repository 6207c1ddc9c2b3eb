"""SQL table ``pools``: named sets of workers with their thresholds and policy."""

from collections.abc import Sequence
from typing import Any

from drumbeat.core.errors import AlreadyExists, NotFound, Refused
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.store.flow_rules import has_unfinished, needed_elsewhere
from drumbeat.store.interface import PoolChange
from drumbeat.store.sql.database import Database, Script, check_fence, transact_again
from drumbeat.store.sql.job_rows import row_id
from drumbeat.store.sql.rows import at_us, dump, pool_of, thresholds_json

_PARENTS_AT_ONCE = 1000  #: deleted jobs whose children one query looks for


class SqlPools:
    """Creates, finds, changes and deletes pools. A pool is a named set of workers, often with a queue of jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, pool: PoolRow) -> PoolRow:
        return await self._database.transact(create_pool(pool))

    async def get(self, pool_id: PoolId) -> PoolRow:
        found = await self.find(pool_id)
        if found is None:
            raise no_pool(pool_id)
        return found

    async def find(self, pool_id: PoolId) -> PoolRow | None:
        rows = await self._database.read("find_pool", {"pool_id": pool_id})
        return pool_of(rows[0]) if rows else None

    async def list(self, kind: PoolKind | None = None) -> Sequence[PoolRow]:
        return [pool_of(row) for row in await self._database.read("list_pools", {"kind": kind})]

    async def change(self, pool_id: PoolId, change: PoolChange, *, fence: Fence | None = None) -> PoolRow:
        return await self._database.transact(_change_pool(pool_id, change, fence))

    async def delete(self, pool_id: PoolId, *, unfinished: bool = True) -> None:
        await transact_again(self._database, lambda: delete_pool(pool_id, unfinished=unfinished))


def no_pool(pool_id: str) -> NotFound:
    return NotFound(f"there is no pool {pool_id!r}; create it, or see which there are: drumbeat pools list")


def no_jobs_pool(pool_id: str) -> NotFound:
    """Return the error of a push to a pool that does not exist, or that is a benchmark's or a fleet's and has no queue."""
    return NotFound(f"there is no pool of jobs {pool_id!r}; create it, or see which there are: drumbeat pools list")


def create_pool(pool: PoolRow) -> Script[PoolRow]:
    rows = yield "add_pool", _pool_values(pool) | {"kind": pool.kind}
    if not rows:
        raise AlreadyExists(f"pool {pool.pool_id!r} already exists; choose another name")
    return pool_of(rows[0])


def _change_pool(pool_id: PoolId, change: PoolChange, fence: Fence | None) -> Script[PoolRow]:
    """Change some fields of a pool. The row stays locked from reading to saving, so no concurrent change is lost."""
    yield from check_fence(fence)
    rows = yield "lock_pool", {"pool_id": pool_id}
    if not rows:
        raise no_pool(pool_id)
    saved = yield "save_pool", _pool_values(change.of(pool_of(rows[0])))
    return pool_of(saved[0])


def _pool_values(pool: PoolRow) -> dict[str, Any]:
    return {
        "pool_id": pool.pool_id,
        "thresholds": thresholds_json(pool.thresholds),
        "policy": dump(dict(pool.policy)),
        "paused_until": at_us(pool.paused_until),
    }


def delete_pool(pool_id: PoolId, *, unfinished: bool = True) -> Script[None]:
    """Delete a pool and everything that belongs to it. Raises Refused while it has live workers, while it has unfinished jobs
    and ``unfinished`` is False, and while an unfinished job of another pool depends on one of its jobs.

    The children are read after their parents are deleted, so that none is missed: a push at the same time has either committed
    its child before that, or it finds no parent and fails."""
    yield "lock_pool_to_delete", {"pool_id": pool_id}
    live = (yield "count_live_workers", {"pool_id": pool_id})[0]["live"]
    if live:
        raise Refused(f"pool {pool_id!r} still has {live} live workers; drain them first")
    if not unfinished and (yield "find_unfinished", {"pool_id": pool_id}):
        raise has_unfinished(pool_id)
    yield "delete_pool", {"pool_id": pool_id}
    parents = [row["seq"] for row in (yield "delete_pool_parents", {"pool_id": pool_id})]
    for first in range(0, len(parents), _PARENTS_AT_ONCE):
        numbers = dump(parents[first : first + _PARENTS_AT_ONCE])
        if children := (yield "find_unfinished_child", {"numbers": numbers}):
            raise needed_elsewhere(pool_id, row_id(children[0]), PoolId(children[0]["pool_id"]))
