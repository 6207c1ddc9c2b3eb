"""Schema and housekeeping."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from drumbeat.core.billing import billed_since
from drumbeat.core.errors import StoreTooNew
from drumbeat.store.interface import StoreReport
from drumbeat.store.sql.database import Database
from drumbeat.store.sql.migrate import LATEST, find_version, migrate
from drumbeat.store.sql.rows import at_us, instant, to_us

TABLES = (
    "pools",
    "workers",
    "events",
    "leases",
    "beats",
    "samples",
    "runs",
    "steps",
    "results",
    "executions",
    "execution_files",
    "templates",
    "connections",
    "answers",
    "notes",
    "jobs",
    "job_attempts",
    "group_claims",
    "job_counts",
    "logs",
)
_PRUNED = ("samples", "logs", "beats", "workers", "events", "leases")


class SqlUpkeep:
    """Schema and housekeeping."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def migrate(self) -> Sequence[int]:
        refuse_newer(self._database.location, await self._database.transact(find_version()))
        return await self._database.transact(migrate())

    async def check(self) -> StoreReport:
        version = await self._database.transact(find_version())
        problems = list(await self._database.examine())
        if version < LATEST:
            problems.append(f"the schema is version {version}, this Drumbeat needs {LATEST}; run: drumbeat store migrate")
        return StoreReport(
            backend=self._database.traits.name,
            location=self._database.location,
            schema_version=version,
            latest_version=LATEST,
            server=await self._database.describe(),
            now=instant((await self._database.read("now"))[0]["now"]),
            rows=await self._row_counts() if version >= LATEST else {},
            problems=problems,
        )

    async def _row_counts(self) -> Mapping[str, int]:
        return {table: (await self._database.read(f"count_{table}"))[0]["rows"] for table in TABLES}

    async def prune(self, older_than: timedelta) -> Mapping[str, int]:
        now = instant((await self._database.read("now"))[0]["now"])
        values = {"age": to_us(older_than), "billed_since": at_us(billed_since(now))}
        return {table: len(await self._database.write(f"prune_{table}", values)) for table in _PRUNED}


def refuse_newer(location: str, version: int) -> None:
    """Raise StoreTooNew rather than touch tables this code does not know."""
    if version > LATEST:
        raise StoreTooNew(
            f"the store at {location} has schema version {version}, this Drumbeat knows up to {LATEST}; upgrade Drumbeat"
        )
