"""The layout of the keys, and housekeeping."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta

from drumbeat.core.billing import billed_since
from drumbeat.core.errors import StoreTooNew
from drumbeat.store.interface import StoreReport
from drumbeat.store.redis.database import RedisDatabase
from drumbeat.store.redis.rows import at_us, instant, to_us

LATEST = 1  #: the version of the keys' layout
_COUNTED = ("workers", "events", "beats", "samples", "logs", "jobs")
_PRUNED = ("samples", "logs", "beats", "workers")


class RedisUpkeep:
    def __init__(self, database: RedisDatabase) -> None:
        self._database = database

    async def migrate(self) -> Sequence[int]:
        refuse_newer(self._database.location, await self._database.run("version_find"))
        applied: list[int] = await self._database.run("version_raise", LATEST)
        return applied

    async def check(self) -> StoreReport:
        version = await self._database.run("version_find")
        problems = list(await self._database.examine())
        if version < LATEST:
            problems.append(f"the keys' layout is version {version}, this Drumbeat needs {LATEST}; run: drumbeat store migrate")
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

    async def prune(self, older_than: timedelta) -> Mapping[str, int]:
        """Pool by pool, so that the server is free for others in between. Events stay: Redis has no runs that end."""
        gone = Counter(dict.fromkeys((*_PRUNED, "events"), 0))
        billed = at_us(billed_since(instant(await self._database.run("now"))))
        for pool in await self._database.run("pool_names"):
            counts = await self._database.run("pool_prune", pool, to_us(older_than), billed)
            gone.update(dict(zip(_PRUNED, counts, strict=True)))
        gone["leases"] = await self._database.run("lease_prune", to_us(older_than))
        return dict(gone)

    async def _row_counts(self) -> Mapping[str, int]:
        pools = await self._database.run("pool_names")
        counts = Counter({"pools": len(pools), "leases": await self._database.run("lease_count")})
        counts.update(dict.fromkeys(_COUNTED, 0))
        for pool in pools:
            counts.update(dict(zip(_COUNTED, await self._database.run("pool_count", pool), strict=True)))
        return dict(counts)


def refuse_newer(location: str, version: int) -> None:
    """Raise StoreTooNew rather than touch keys this code does not know."""
    if version > LATEST:
        raise StoreTooNew(
            f"the store at {location} has layout version {version}, this Drumbeat knows up to {LATEST}; upgrade Drumbeat"
        )
