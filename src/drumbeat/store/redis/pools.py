"""Pools in Redis: named sets of workers."""

from collections.abc import Sequence

from drumbeat.core.errors import NotFound, Refused
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.store.flow_rules import has_unfinished, needed_elsewhere
from drumbeat.store.interface import PoolChange
from drumbeat.store.redis.database import RedisDatabase
from drumbeat.store.redis.jobs import RedisJobs
from drumbeat.store.redis.rows import change_arguments, fence_arguments, pool_arguments, pool_of
from drumbeat.store.redis.upkeep import delete_rows

_UNFINISHED, _LINKED = b"unfinished", b"linked"  #: answers of the script ``pool_delete``
_MOST_CHECKS = 5  #: how often a pool's jobs are checked for children in other pools, if links are added during each check


class RedisPools:
    def __init__(self, database: RedisDatabase) -> None:
        self._database = database

    async def create(self, pool: PoolRow) -> PoolRow:
        arguments = (pool.pool_id, str(pool.kind), *pool_arguments(pool))
        while (row := await self._database.run("pool_create", *arguments)) is None:
            await delete_rows(self._database, pool.pool_id)
        return pool_of(row)

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
            arguments = (*fence_arguments(fence), pool_id, *change_arguments(change, row))
            if changed := await self._database.run("pool_change", *arguments):
                return pool_of(changed)

    async def delete(self, pool_id: PoolId, *, unfinished: bool = True) -> None:
        """Check that the pool may be deleted, mark it as deleted, and delete its rows in pages: other callers are served in
        between. If this ends early, deleting or creating the pool goes on with it."""
        for _ in range(_MOST_CHECKS):
            links = await self._checked(pool_id, unfinished, None)
            if links is None:
                break
            child = await RedisJobs(self._database).child_elsewhere(pool_id)
            if child is not None:
                raise needed_elsewhere(pool_id, child.job_id, child.pool_id)
            if await self._checked(pool_id, unfinished, links) != _LINKED:
                break
        else:
            raise Refused(
                f"pool {pool_id!r} cannot be deleted yet: jobs that need its jobs are being pushed to other pools; stop these "
                "pushes, then try again"
            )
        await delete_rows(self._database, pool_id)

    async def _checked(self, pool_id: PoolId, unfinished: bool, links: bytes | None) -> bytes | None:
        """Run ``pool_delete``, which marks the pool if ``links`` is given. Raises Refused."""
        answer: bytes | None = await self._database.run("pool_delete", pool_id, int(unfinished), links)
        if answer == _UNFINISHED:
            raise has_unfinished(pool_id)
        return answer


def _no_pool(pool_id: PoolId) -> NotFound:
    return NotFound(f"there is no pool {pool_id!r}; create it, or see which there are: drumbeat pools list")
