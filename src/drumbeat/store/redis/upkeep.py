"""Maintenance in Redis: the version of the keys' layout, migration, health check, and deleting old rows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta

from drumbeat.core.billing import billed_since
from drumbeat.core.errors import StoreTooNew
from drumbeat.core.pool import PoolId
from drumbeat.core.retention import JOBS, RECORDS, Prunable, Pruned
from drumbeat.store.interface import StoreReport
from drumbeat.store.interface.store import ProgressCallback
from drumbeat.store.pruning import prune_all, prune_all_leases
from drumbeat.store.redis.database import RedisDatabase
from drumbeat.store.redis.rows import at_us, instant, to_us

LATEST = 4  #: the newest version of the keys' layout, which this code uses
_PAGE = 500  #: rows per script call, so that other clients are served in between
_COUNTED = ("workers", "events", "beats", "samples", "logs", "jobs")
_PRUNED_AT_ONCE = 100


class RedisUpkeep:
    def __init__(self, database: RedisDatabase) -> None:
        self._database = database
        self._lease_cursor = b"0"
        self._skipped: dict[tuple[PoolId, Prunable, timedelta], int] = {}  #: old jobs skipped because of children

    async def migrate(self) -> Sequence[int]:
        return await migrate(self._database)

    async def check(self) -> StoreReport:
        version = await self._database.run("version_find")
        problems = list(await self._database.examine())
        if version < LATEST:
            problems.append(f"the keys have version {version}, this Drumbeat needs {LATEST}; run: drumbeat store migrate")
        return StoreReport(
            backend=self._database.traits.name,
            location=self._database.location,
            schema_version=version,
            latest_version=LATEST,
            server=await self._database.describe(),
            now=instant(await self._database.run("now")),
            rows=await self._row_counts() if version else {},
            problems=problems,
        )

    async def prune(self, older_than: timedelta, on_progress: ProgressCallback | None = None) -> Mapping[str, int]:
        """Delete old samples, log lines, beats, ended workers, events about single workers, and leases; also what is left of
        pools whose deletion ended early."""
        for pool in await self._database.command(b"SMEMBERS", self._database.key("deleted_pools")):
            await delete_rows(self._database, PoolId(pool.decode()))
        pools = [PoolId(pool.decode()) for pool in await self._database.run("pool_names")]
        deleted = await prune_all(self, pools, RECORDS, older_than, on_progress)
        leases = await prune_all_leases(self.prune_leases, older_than)
        return {**{str(what): rows for what, rows in deleted.items()}, "leases": leases}

    async def prune_leases(self, older_than: timedelta, limit: int = 1000) -> Pruned:
        """Prune one page of the leases; the next call continues after it."""
        arguments = (to_us(older_than), self._lease_cursor, min(limit, _PAGE))
        rows, self._lease_cursor = await self._database.run("lease_prune", *arguments)
        return Pruned(rows=rows, more=self._lease_cursor != b"0")

    async def give_back(self) -> bool:
        return False

    async def prune_some(self, pool_id: PoolId, what: Prunable, older_than: timedelta) -> Pruned:
        if what in JOBS:
            return await self._prune_jobs(pool_id, what, older_than)
        billed = at_us(billed_since(instant(await self._database.run("now"))))
        rows = await self._database.run("pool_prune", pool_id, str(what), to_us(older_than), billed, _PRUNED_AT_ONCE)
        return Pruned(rows=rows, more=rows > 0)

    async def _prune_jobs(self, pool_id: PoolId, what: Prunable, older_than: timedelta) -> Pruned:
        key = (pool_id, what, older_than)
        arguments = (pool_id, str(what), to_us(older_than), _PAGE, self._skipped.pop(key, 0))
        rows, skipped = await self._database.run("job_prune", *arguments)
        if skipped is not None:
            self._skipped[key] = skipped
        return Pruned(rows=rows, more=skipped is not None)

    async def _row_counts(self) -> Mapping[str, int]:
        pools = await self._database.run("pool_names")
        counts = Counter({"pools": len(pools), "leases": await self._database.run("lease_count")})
        counts.update(dict.fromkeys(_COUNTED, 0))
        for pool in pools:
            counts.update(dict(zip(_COUNTED, await self._database.run("pool_count", pool), strict=True)))
        return dict(counts)


async def delete_rows(database: RedisDatabase, pool_id: PoolId) -> None:
    """Delete the rows of a pool that is marked as deleted, in pages. Goes on with a deletion that ended early; does nothing if
    the pool is not marked."""
    while await database.run("pool_delete_page", pool_id, _PAGE):
        pass


async def migrate(database: RedisDatabase) -> list[int]:
    """Bring the keys to the latest layout. Every step can be repeated safely, so several processes can migrate at once."""
    version = await database.run("version_find")
    refuse_newer(database.location, version)
    if version == 1:
        await _add_sets(database)
    if 0 < version < 4:
        await _add_instructions(database)
    applied: list[int] = await database.run("version_raise", LATEST)
    return applied


async def _add_sets(database: RedisDatabase) -> None:
    """Add the sorted sets that version 2 introduced: ended workers by end time, unfinished jobs by number."""
    for pool in await database.run("pool_names"):
        await database.run("upgrade_pool", pool)
        offset = 0
        while count := await database.run("upgrade_workers", pool, offset, _PAGE):
            offset += count


async def _add_instructions(database: RedisDatabase) -> None:
    """Add the sorted sets that version 4 introduced: instructions by the workers that they are for."""
    for pool in await database.run("pool_names"):
        after = b"-"
        while last := await database.run("upgrade_events", pool, after, _PAGE):
            after = b"(" + last


def refuse_newer(location: str, version: int) -> None:
    """Raise StoreTooNew if the keys have a newer layout than this version of Drumbeat knows."""
    if version > LATEST:
        raise StoreTooNew(
            f"the store at {location} has keys of version {version}, this Drumbeat knows up to {LATEST}; upgrade Drumbeat"
        )
