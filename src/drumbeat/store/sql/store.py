"""The store on top of any SQL database."""

from datetime import datetime
from types import TracebackType
from typing import Self

from drumbeat.core.errors import StoreNotReady
from drumbeat.store.interface import StoreTraits
from drumbeat.store.sql.access import SqlAnswers, SqlConnections
from drumbeat.store.sql.beats import SqlBeats
from drumbeat.store.sql.database import Database
from drumbeat.store.sql.events import SqlEvents
from drumbeat.store.sql.executions import SqlExecutions
from drumbeat.store.sql.job_steps import SqlJobSteps
from drumbeat.store.sql.jobs import SqlJobs
from drumbeat.store.sql.leases import SqlLeases
from drumbeat.store.sql.logs import SqlLogs
from drumbeat.store.sql.membership import SqlMembership
from drumbeat.store.sql.migrate import LATEST, find_schema, migrate
from drumbeat.store.sql.notes import SqlNotes
from drumbeat.store.sql.pools import SqlPools
from drumbeat.store.sql.results import SqlResults
from drumbeat.store.sql.rows import instant
from drumbeat.store.sql.runs import SqlRuns
from drumbeat.store.sql.samples import SqlSamples
from drumbeat.store.sql.steps import SqlSteps
from drumbeat.store.sql.templates import SqlTemplates
from drumbeat.store.sql.upkeep import SqlUpkeep
from drumbeat.store.sql.workers import SqlWorkers


class SqlStore:
    """Implements Store with the tables of one SQL database. Opening it checks the version of the tables."""

    def __init__(self, database: Database, *, create: bool = False, check_version: bool = True) -> None:
        self._database = database
        self._create = create
        self._check_version = check_version
        self.pools = SqlPools(database)
        self.queue = database.queue()
        self.workers = SqlWorkers(database, self.queue)
        self.membership = SqlMembership(database)
        self.events = SqlEvents(database)
        self.leases = SqlLeases(database)
        self.beats = SqlBeats(database)
        self.samples = SqlSamples(database)
        self.runs = SqlRuns(database)
        self.results = SqlResults(database)
        self.steps = SqlSteps(database)
        self.executions = SqlExecutions(database)
        self.templates = SqlTemplates(database)
        self.connections = SqlConnections(database)
        self.answers = SqlAnswers(database)
        self.notes = SqlNotes(database)
        self.jobs = SqlJobs(database, self.queue)
        self.job_steps = SqlJobSteps(database, self.queue)
        self.logs = SqlLogs(database)
        self.upkeep = SqlUpkeep(database)

    @property
    def traits(self) -> StoreTraits:
        return self._database.traits

    @property
    def database(self) -> Database:
        return self._database

    async def now(self) -> datetime:
        return instant((await self._database.read("now"))[0]["now"])

    async def __aenter__(self) -> Self:
        await self._database.open()
        try:
            await self._prepare()
        except BaseException:
            await self._database.close()
            raise
        return self

    async def _prepare(self) -> None:
        schema = await self._database.transact(find_schema())
        schema.refuse_newer(self._database.location)
        if not self._check_version:
            return
        schema.refuse_unfinished(self._database.location)
        version = schema.version
        if version >= LATEST:
            return
        if self._create and not version:
            await self._database.transact(migrate())
        else:
            found = f"tables of version {version}" if version else "no tables of Drumbeat"
            raise StoreNotReady(
                f"expected the store at {self._database.location} to have tables of version {LATEST}, "
                f"found {found}; run: drumbeat store {'migrate' if version else 'init'}",
                is_missing=not version,
            )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._database.close()
