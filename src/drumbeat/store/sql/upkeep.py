"""Maintenance of a SQL store: migrations, checks, deleting old rows, and returning free disk space to the file system."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial

from drumbeat.core.pool import PoolId
from drumbeat.core.retention import RECORDS, Prunable, Pruned
from drumbeat.store.interface import StoreReport
from drumbeat.store.interface.store import ProgressCallback
from drumbeat.store.pruning import prune_all, prune_all_leases
from drumbeat.store.sql.database import Database, Script, transact_again
from drumbeat.store.sql.flow_scripts import pass_on_missed_ends
from drumbeat.store.sql.migrate import LATEST, find_schema, migrate
from drumbeat.store.sql.pruning import SqlPruning
from drumbeat.store.sql.rows import instant, to_us

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
    "job_links",
    "job_steps",
    "group_claims",
    "job_counts",
    "logs",
)


_CHILDREN_AT_ONCE = 500  #: waiting jobs that one transaction checks
_FEWEST_PAGES = 1000  #: free space below this many pages, or below a quarter of the file, is kept for reuse


class SqlUpkeep:
    """Migrates, checks and prunes a SQL store, and returns free disk space to the file system."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pruning = SqlPruning(database)

    async def migrate(self) -> Sequence[int]:
        schema = await self._database.transact(find_schema())
        schema.refuse_newer(self._database.location)
        schema.refuse_unfinished(self._database.location)
        applied = await self._database.transact(_migrate_and_recount())
        await self._pass_on_missed_ends()
        return applied

    async def check(self) -> StoreReport:
        schema = await self._database.transact(find_schema())
        version = schema.version
        problems = list(await self._database.examine())
        if version < LATEST:
            problems.append(f"the schema is version {version}, this Drumbeat needs {LATEST}; run: drumbeat store migrate")
        if schema.is_copying:
            problems.append(
                "a copy into this store is unfinished; finish it with the same command: drumbeat store copy FROM TO"
            )
        return StoreReport(
            backend=self._database.traits.name,
            location=self._database.location,
            schema_version=version,
            latest_version=LATEST,
            server=await self._database.describe(),
            now=instant((await self._database.read("now"))[0]["now"]),
            rows=await self._row_counts() if version >= LATEST else {},
            problems=problems,
            limits=self._database.traits.limits,
        )

    async def _pass_on_missed_ends(self) -> None:
        """Update jobs whose parents an older Drumbeat has ended: it does not know that jobs can wait for other jobs."""
        for pool in await self._database.read("list_pools", {"kind": None}):
            after = 0
            while True:
                values = {"pool_id": pool["pool_id"], "after": after, "limit": _CHILDREN_AT_ONCE}
                numbers = [row["seq"] for row in await self._database.read("list_waiting_after_ends", values)]
                if not numbers:
                    break
                after = numbers[-1]
                await transact_again(self._database, partial(pass_on_missed_ends, numbers))

    async def _row_counts(self) -> Mapping[str, int]:
        return {table: (await self._database.read(f"count_{table}"))[0]["rows"] for table in TABLES}

    async def prune(self, older_than: timedelta, on_progress: ProgressCallback | None = None) -> Mapping[str, int]:
        pools = [row["pool_id"] for row in await self._database.read("list_pools", {"kind": None})]
        deleted = await prune_all(SqlPruning(self._database), pools, RECORDS, older_than, on_progress)
        leases = await prune_all_leases(self.prune_leases, older_than)
        return {**{str(what): rows for what, rows in deleted.items()}, "leases": leases}

    async def give_back(self) -> bool:
        [space] = await self._database.read("free_space")
        if space["free"] < max(_FEWEST_PAGES, space["pages"] // 4):
            return False
        await self._database.write("give_back", {})
        return True

    async def prune_some(self, pool_id: PoolId, what: Prunable, older_than: timedelta) -> Pruned:
        return await self._pruning.prune_some(pool_id, what, older_than)

    async def prune_leases(self, older_than: timedelta, limit: int = 1000) -> Pruned:
        rows = await self._database.write("prune_leases", {"age": to_us(older_than), "limit": limit})
        return Pruned(rows=len(rows), more=len(rows) == limit)


def _migrate_and_recount() -> Script[list[int]]:
    """Migrate the tables and recount ended jobs: processes of an older Drumbeat may have ended jobs without counting them."""
    applied = yield from migrate()
    yield "lock_counts", {}
    yield "recount_ended", {}
    return applied
