"""PostgreSQL through asyncpg: a small pool of connections, prepared statements, one round trip for a single query.

Behind PgBouncer in transaction mode a prepared statement can be missing at its next use, so statements are sent as text.
PgBouncer is detected when the store opens: the server process that runs a query is not the one that accepted the connection.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from drumbeat.core.errors import AlreadyExists, DrumbeatError, InvalidInput, InvalidSettings, MissingExtra, StoreUnavailable
from drumbeat.store.interface import StoreTraits
from drumbeat.store.sql.database import Bulk, Deadlock, MayConflict, Rows, Script, Values, run_script
from drumbeat.store.sql.postgres_connection_cache import ConnectionCache
from drumbeat.store.sql.postgres_dialect import dialect
from drumbeat.store.sql.postgres_notify import PostgresNotify
from drumbeat.store.sql.postgres_push_fastpath import PushFastpath, StatementConnection
from drumbeat.store.sql.postgres_queue import PostgresQueue
from drumbeat.store.sql.queries import Query, SqlTable, load_queries, load_table_queries

if TYPE_CHECKING:
    import asyncpg

T = TypeVar("T")

_STREAMED_ROWS = 500
_MIGRATIONS = ("migration_", "view_", "drop_view_", "lock_migrations", "lock_counts", "recount_ended")  #: how their names begin
_MIGRATING = 86_400.0  #: time limit in seconds for each statement of a migration, since tables can be large
_APART = 10.0  #: time limit in seconds to connect for one query, and to run it

#: Planner settings. Each statement is planned once, since planning a claim takes longer than running it. A plan made while a
#: table is empty must stay fast when it is full, so an index is read in order: LIMIT then ends the scan early.
_PLANS = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off"}

#: Settings of a session. A statement that has waited for a lock must see what was committed meanwhile, whatever the database's
#: default isolation is.
_SETTINGS = {**_PLANS, "default_transaction_isolation": "read committed"}


class PostgresDatabase:
    """A PostgreSQL database with Drumbeat's tables in one schema."""

    traits = StoreTraits(name="postgresql", shared=True, networked=True)

    def __init__(
        self,
        url: str,
        *,
        schema: str = "drumbeat",
        connections: int = 4,
        command_timeout: timedelta = timedelta(seconds=10),
        connect_timeout: timedelta = timedelta(seconds=10),
    ) -> None:
        self._url = url
        self._schema = schema
        self._connections = connections
        self._command_timeout = command_timeout.total_seconds()
        self._connect_timeout = connect_timeout.total_seconds()
        self._queries = load_queries(dialect(schema))
        self._cache: ConnectionCache | None = None
        self._pooled = False
        self.notifier = PostgresNotify(self, schema)
        self.fastpath = PushFastpath(self, "push_one", driver_errors)

    @property
    def location(self) -> str:
        parts = urlsplit(self._url)
        hosts = parts.netloc.rpartition("@")[2]
        return f"postgresql://{hosts or 'localhost'}{parts.path} (schema {self._schema})"

    async def open(self) -> None:
        try:
            self._pooled = await self._is_behind_a_pooler()
            pool = await self._make_pool(pooled=self._pooled)
            closed, outdated = _driver().InterfaceError, _driver().InvalidCachedStatementError
            self._cache = ConnectionCache(pool, self._command_timeout, closed, outdated, prepares=not self._pooled)
        except driver_errors() as exc:
            if _is_being_cancelled():  # the driver sometimes reports a cancellation as a lost connection
                raise asyncio.CancelledError from exc
            raise self.translated(exc) from exc

    async def _make_pool(self, *, pooled: bool) -> "asyncpg.Pool[asyncpg.Record]":
        pool: asyncpg.Pool[asyncpg.Record] = await _driver().create_pool(
            self._url,
            min_size=1,
            max_size=self._connections,
            timeout=self._connect_timeout,
            command_timeout=self._command_timeout,
            statement_cache_size=0 if pooled else 256,
            server_settings=None if pooled else _SETTINGS,
            max_inactive_connection_lifetime=0,
            reset=_leave_as_it_is,
        )
        return pool

    async def _is_behind_a_pooler(self) -> bool:
        asyncpg = _driver()
        connection = await asyncpg.connect(
            self._url, timeout=self._connect_timeout, command_timeout=self._command_timeout, statement_cache_size=0
        )
        try:
            return bool(await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid())
        finally:
            await connection.close(timeout=self._connect_timeout)

    async def close(self) -> None:
        if self._cache is None:
            return
        await self.notifier.close()
        self.fastpath.close()
        connections, self._cache = self._cache, None
        try:
            async with asyncio.timeout(self._connect_timeout):
                await connections.close()
        except (TimeoutError, OSError):
            connections.terminate()

    def queue(self) -> PostgresQueue:
        return PostgresQueue(self, self.notifier, self.fastpath)

    async def listener(self) -> "asyncpg.Connection[asyncpg.Record] | None":
        """Open a dedicated connection for LISTEN. Returns None behind a connection pooler, where LISTEN does not work."""
        if self._pooled:
            return None
        try:
            made: asyncpg.Connection[asyncpg.Record] = await _driver().connect(
                self._url, timeout=self._connect_timeout, command_timeout=self._command_timeout, server_settings=_SETTINGS
            )
        except driver_errors() as exc:
            if _is_being_cancelled():
                raise asyncio.CancelledError from exc
            raise self.translated(exc) from exc
        return made

    async def call_driver(self, call: Awaitable[object]) -> None:
        """Await a call of the driver, and translate its errors."""
        try:
            await call
        except driver_errors() as exc:
            if _is_being_cancelled():
                raise asyncio.CancelledError from exc
            raise self.translated(exc) from exc

    async def statement_connection(self, query: str) -> tuple[StatementConnection, tuple[str, ...]] | None:
        """Open a connection for one query. Returns it and the query's parameter names; None behind a connection pooler."""
        [statement] = self._queries[query].statements
        connection = await self.listener()
        if connection is None:
            return None
        try:
            prepared = await connection.prepare(statement.text)
        except driver_errors() as exc:
            connection.terminate()
            raise self.translated(exc) from exc
        return StatementConnection(
            connection, prepared, _driver().PostgresError.new, self._command_timeout
        ), statement.parameters

    async def read(self, query: str, values: Values | None = None) -> Rows:
        return await self.write(query, values or {})

    async def write(self, query: str, values: Values) -> Rows:
        found = self._queries[query]
        if len(found.statements) > 1:
            return await self.transact(_only(query, values))
        try:
            statement = found.statements[0]
            return await self._opened().run(statement.text, tuple(map(values.__getitem__, statement.parameters)))
        except driver_errors() as exc:
            raise self.translated(exc) from exc

    async def transact(self, script: Script[T]) -> T:
        try:
            async with self._opened().borrowed() as connection, connection.transaction(isolation="read_committed"):
                return await self._drive(connection, script)
        except driver_errors() as exc:
            raise self.translated(exc) from exc

    async def _drive(self, connection: "asyncpg.pool.PoolConnectionProxy[Any]", script: Script[T]) -> T:
        return await run_script(script, lambda name, values: self._perform(connection, self._queries[name], values))

    async def _perform(
        self, connection: "asyncpg.pool.PoolConnectionProxy[Any]", query: Query, values: Values | Bulk | MayConflict
    ) -> Rows:
        if isinstance(values, Bulk):
            return await self._load(connection, query, values)
        if isinstance(values, MayConflict):
            return await _try(connection, query, values)
        if query.name.startswith(_MIGRATIONS):
            return await _migrate(connection, query, values)
        return await _run(connection, query, values)

    async def _load(self, connection: "asyncpg.pool.PoolConnectionProxy[Any]", query: Query, bulk: Bulk) -> Rows:
        """COPY rows into the table. If a row exists already, COPY to a temporary table and insert only the new rows from it."""
        try:
            async with connection.transaction():
                await _copy(connection, bulk, bulk.table, self._schema)
            return [{"new": len(bulk.records)}]
        except _driver().UniqueViolationError:
            if len(query.statements) == 1:
                raise
            create, insert = query.statements
            await connection.execute(create.text)
            await _copy(connection, bulk, "incoming")
            return [{"new": int((await connection.execute(insert.text)).rpartition(" ")[2])}]

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator["_PostgresSnapshot"]:
        async with self._connection() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.fetch("SELECT 1")  # PostgreSQL takes its snapshot at the first query
            yield _PostgresSnapshot(connection, self._queries)

    def add_table_queries(self, tables: Iterable[SqlTable]) -> None:
        for table in tables:
            self._queries = {**self._queries, **load_table_queries(dialect(self._schema), table)}

    async def describe(self) -> str:
        async with self._connection() as connection:
            return f"PostgreSQL {await connection.fetchval('SHOW server_version')}"

    async def examine(self) -> Sequence[str]:
        async with self._connection() as connection:
            if await connection.fetchval("SELECT pg_is_in_recovery()"):
                return ["this server is a read-only replica; point the store at the primary"]
            return []

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator["asyncpg.pool.PoolConnectionProxy[Any]"]:
        try:
            async with self._opened().borrowed() as connection:
                yield connection
        except driver_errors() as exc:
            raise self.translated(exc) from exc

    def _opened(self) -> ConnectionCache:
        if self._cache is None:
            raise StoreUnavailable("this store is closed; open it before use")
        return self._cache

    def translated(self, exc: Exception) -> DrumbeatError:
        asyncpg = _driver()
        if isinstance(exc, asyncpg.InvalidAuthorizationSpecificationError | asyncpg.InvalidPasswordError):
            return InvalidSettings(f"PostgreSQL at {self.location} refused the user or password; check the store's URL")
        if isinstance(exc, asyncpg.InvalidCatalogNameError):
            return InvalidSettings(f"PostgreSQL at {self.location} has no such database; create it first (createdb)")
        if isinstance(exc, asyncpg.InsufficientPrivilegeError):
            return InvalidSettings(
                f"PostgreSQL at {self.location} refused: {exc}; grant it, or use another user in the store's URL"
            )
        if isinstance(exc, asyncpg.UndefinedObjectError | asyncpg.exceptions.ClientConfigurationError):
            return InvalidSettings(f"PostgreSQL at {self.location}: {exc}; check the options of the store's URL")
        if isinstance(exc, asyncpg.DeadlockDetectedError):
            return Deadlock(f"PostgreSQL at {self.location}: {exc}; try again")
        if isinstance(exc, asyncpg.DataError | asyncpg.ProgramLimitExceededError):  # the latter: a text too long for its index
            return InvalidInput(f"PostgreSQL cannot store this value: {exc}")
        if isinstance(exc, asyncpg.UniqueViolationError):
            detail = str(exc.detail or exc).rstrip(".")
            return AlreadyExists(f"already exists (created concurrently): {detail}; choose another name")
        hint = "; is it running, and is the store's URL right?" if isinstance(exc, OSError) else ""
        return StoreUnavailable(f"PostgreSQL at {self.location}: {str(exc) or type(exc).__name__}{hint}")


class _PostgresSnapshot:
    """One read-only transaction on a connection of its own."""

    def __init__(self, connection: "asyncpg.pool.PoolConnectionProxy[Any]", queries: Mapping[str, Query]) -> None:
        self._connection = connection
        self._queries = queries

    async def read(self, query: str, values: Values | None = None) -> Rows:
        return await _run(self._connection, self._queries[query], values or {})

    async def stream(self, query: str) -> AsyncGenerator[Sequence[tuple[Any, ...]], None]:
        [statement] = self._queries[query].statements
        cursor = await self._connection.cursor(statement.text)
        while rows := await cursor.fetch(_STREAMED_ROWS):
            yield [*map(tuple, rows)]


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def read_apart(url: str, query: Query, values: Values) -> Rows:
    """Connect to the store's database at ``url`` only to run one query. Raises StoreUnavailable, InvalidSettings."""
    try:
        connection = await _driver().connect(url, timeout=_APART, command_timeout=_APART, statement_cache_size=0)
        try:
            return await _run(connection, query, values)
        finally:
            await connection.close(timeout=_APART)
    except driver_errors() as exc:
        raise PostgresDatabase(url).translated(exc) from exc


async def _run(
    connection: "asyncpg.Connection[Any] | asyncpg.pool.PoolConnectionProxy[Any]", query: Query, values: Values
) -> Rows:
    rows: Rows = ()
    for statement in query.statements:
        rows = await connection.fetch(statement.text, *(values[name] for name in statement.parameters))
    return rows


async def _migrate(connection: "asyncpg.pool.PoolConnectionProxy[Any]", query: Query, values: Values) -> Rows:
    rows: Rows = ()
    for statement in query.statements:
        given = (values[name] for name in statement.parameters)
        rows = await connection.fetch(statement.text, *given, timeout=_MIGRATING)
    return rows


async def _try(connection: "asyncpg.pool.PoolConnectionProxy[Any]", query: Query, trial: MayConflict) -> Rows:
    try:
        async with connection.transaction():
            return await _run(connection, query, trial.values)
    except _driver().UniqueViolationError:
        return ()


async def _copy(connection: "asyncpg.pool.PoolConnectionProxy[Any]", bulk: Bulk, table: str, schema: str | None = None) -> None:
    try:
        await connection.copy_records_to_table(table, schema_name=schema, records=bulk.records, columns=bulk.columns)
    except (OverflowError, TypeError, UnicodeEncodeError) as exc:
        raise InvalidInput(f"PostgreSQL cannot store this value: {exc}") from exc


async def _leave_as_it_is(connection: object) -> None:
    """Reset nothing when a connection returns to the pool: no statement changes session state, and this saves a round trip."""


def _only(query: str, values: Values) -> Script[Rows]:
    return (yield query, values)


@cache
def driver_errors() -> tuple[type[Exception], ...]:
    """Return the driver's error types that are translated to Drumbeat's errors. The driver's internal error is among them,
    since it is raised if the server dies while a statement is being prepared."""
    asyncpg = _driver()
    return (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError, ssl.SSLError)


@cache
def _driver() -> Any:
    try:
        import asyncpg
    except ImportError as exc:
        raise MissingExtra("the PostgreSQL store", "postgres") from exc
    return asyncpg
