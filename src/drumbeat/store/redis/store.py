"""The Redis store: pools, workers, events, leases and jobs, but no benchmarks."""

from datetime import datetime
from types import TracebackType
from typing import Self

from drumbeat.core.errors import StoreNotReady
from drumbeat.store.interface import StoreTraits
from drumbeat.store.redis.answers import RedisAnswers
from drumbeat.store.redis.bench import NoBenchmarks
from drumbeat.store.redis.database import RedisDatabase
from drumbeat.store.redis.events import RedisEvents
from drumbeat.store.redis.job_steps import RedisJobSteps
from drumbeat.store.redis.jobs import RedisJobs
from drumbeat.store.redis.leases import RedisLeases
from drumbeat.store.redis.membership import RedisMembership
from drumbeat.store.redis.notes import RedisNotes
from drumbeat.store.redis.pools import RedisPools
from drumbeat.store.redis.queue import RedisQueue
from drumbeat.store.redis.record import RedisBeats, RedisLogs, RedisSamples
from drumbeat.store.redis.rows import instant
from drumbeat.store.redis.upkeep import LATEST, RedisUpkeep, migrate, refuse_newer
from drumbeat.store.redis.workers import RedisWorkers


class RedisStore:
    """A store on one Redis server. Opening it checks the version of the keys; with ``create`` an empty store is initialised."""

    def __init__(self, database: RedisDatabase, *, create: bool = False, check_version: bool = True) -> None:
        self._database = database
        self._create = create
        self._check_version = check_version
        self.pools = RedisPools(database)
        self.workers = RedisWorkers(database)
        self.membership = RedisMembership(database)
        self.events = RedisEvents(database)
        self.leases = RedisLeases(database)
        self.beats = RedisBeats(database)
        self.samples = RedisSamples(database)
        self.logs = RedisLogs(database)
        self.queue = RedisQueue(database)
        self.jobs = RedisJobs(database)
        self.job_steps = RedisJobSteps(database)
        self.upkeep = RedisUpkeep(database)
        self.answers = RedisAnswers(database)
        self.notes = RedisNotes(database)
        self.runs = self.results = self.steps = self.executions = self.templates = self.connections = NoBenchmarks()

    @property
    def traits(self) -> StoreTraits:
        return self._database.traits

    @property
    def database(self) -> RedisDatabase:
        return self._database

    async def now(self) -> datetime:
        return instant(await self._database.run("now"))

    async def __aenter__(self) -> Self:
        await self._database.open()
        try:
            await self._prepare()
        except BaseException:
            await self._database.close()
            raise
        return self

    async def _prepare(self) -> None:
        version = await self._database.run("version_find")
        refuse_newer(self._database.location, version)
        if version >= LATEST or not self._check_version:
            return
        if self._create and not version:
            await migrate(self._database)
        else:
            found = f"keys of version {version}" if version else "no Drumbeat keys"
            raise StoreNotReady(
                f"expected the store at {self._database.location} to have keys of version {LATEST}, "
                f"found {found}; run: drumbeat store {'migrate' if version else 'init'}",
                is_missing=not version,
            )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._database.close()
