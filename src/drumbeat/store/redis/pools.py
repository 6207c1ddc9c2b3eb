"""Pools in Redis: named sets of workers."""

from collections.abc import Sequence

from drumbeat.core.errors import NotFound
from drumbeat.core.job import JobId
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.store.flow_rules import has_unfinished, needed_elsewhere
from drumbeat.store.interface import PoolChange
from drumbeat.store.redis.database import RedisDatabase
from drumbeat.store.redis.rows import change_words, fence_words, pool_of, pool_words


class RedisPools:
    def __init__(self, database: RedisDatabase) -> None:
        self._database = database

    async def create(self, pool: PoolRow) -> PoolRow:
        return pool_of(await self._database.run("pool_create", pool.pool_id, str(pool.kind), *pool_words(pool)))

    async def get(self, pool_id: PoolId) -> PoolRow:
        pool = await self.find(pool_id)
        if pool is None:
            raise _no_pool(pool_id)
        return pool

    async def find(self, pool_id: PoolId) -> PoolRow | None:
        row = await self._database.run("pool_find", pool_id)
        return pool_of(row) if row else None

    async def list(self, kind: PoolKind | None = None) -> Sequence[PoolRow]:
        pools = map(pool_of, await self._database.run("pool_list"))
        return [pool for pool in pools if kind in (None, pool.kind)]

    async def change(self, pool_id: PoolId, change: PoolChange, *, fence: Fence | None = None) -> PoolRow:
        while True:
            row = await self._database.run("pool_find", pool_id)
            if not row:
                raise _no_pool(pool_id)
            words = (*fence_words(fence), pool_id, *change_words(change, row))
            if changed := await self._database.run("pool_change", *words):
                return pool_of(changed)

    async def delete(self, pool_id: PoolId, *, unfinished: bool = True) -> None:
        found = await self._database.run("pool_delete", pool_id, int(unfinished))
        if found == 1:
            raise has_unfinished(pool_id)
        if found:
            child, child_pool = found
            raise needed_elsewhere(pool_id, JobId(child.decode()), PoolId(child_pool.decode()))


def _no_pool(pool_id: PoolId) -> NotFound:
    return NotFound(f"there is no pool {pool_id!r}; create it, or see which there are: drumbeat pools list")
