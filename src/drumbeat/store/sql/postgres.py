"""PostgreSQL through asyncpg: a small pool of connections, prepared statements, one round trip for a single query.

Behind PgBouncer in transaction mode a prepared statement may not be there the next time; that is noticed when the pool opens
(the backend that answers is not the one that greeted) and statements are then sent whole.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from drumbeat.core.errors import AlreadyExists, DrumbeatError, InvalidInput, InvalidSettings, MissingExtra, StoreUnavailable
from drumbeat.store.interface import Traits
from drumbeat.store.sql.database import Bulk, Rows, Script, Values
from drumbeat.store.sql.queries import Dialect, Query, load_queries

if TYPE_CHECKING:
    import asyncpg

T = TypeVar("T")


def dialect(schema: str) -> Dialect:
    """PostgreSQL's words, with our tables in a schema of their own."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", schema):
        raise InvalidSettings(f"expected a schema's name of small letters, digits and underscores, got {schema!r}")
    return Dialect(
        name="postgres",
        schema=f'"{schema}".',
        numbered=True,
        words={
            "schema": schema,
            "now": "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)",
            "json": "jsonb",
            "bytes": "bytea",
            "real": "float8",
            "hot": "WITH (fillfactor = 50)",
            "clustered": "",
            "for_share": "FOR SHARE",
            "for_update": "FOR UPDATE",
        },
        calls={
            "time": lambda us: f"to_timestamp(({us}) / 1000000.0)",
            "json_object": lambda *parts: f"jsonb_build_object({', '.join(parts)})",
            "json_filled": lambda document, *pairs: f"(jsonb_build_object({', '.join(pairs)}) || {document})",
            "json_part": lambda document, key: f"({document} -> {key})",
            "json_text": lambda document, *keys: f"({document} #>> ARRAY[{', '.join(keys)}])",
            "json_number": lambda document, key: f"CAST({document} ->> {key} AS float8)",
            "json_collect": lambda key, value: f"jsonb_object_agg({key}, {value})",
        },
    )


class PostgresDatabase:
    """One PostgreSQL database, our tables in one schema of it."""

    traits = Traits(name="postgresql", durable=True, shared=True, networked=True)

    def __init__(
        self,
        url: str,
        *,
        schema: str = "drumbeat",
        connections: int = 4,
        command_timeout: timedelta = timedelta(seconds=10),
        connect_timeout: timedelta = timedelta(seconds=5),
    ) -> None:
        self._url = url
        self._schema = schema
        self._connections = connections
        self._command_timeout = command_timeout.total_seconds()
        self._connect_timeout = connect_timeout.total_seconds()
        self._dialect = dialect(schema)
        self._queries = load_queries(self._dialect)
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    @property
    def location(self) -> str:
        parts = urlsplit(self._url)
        hosts = parts.netloc.rpartition("@")[2]
        return f"postgresql://{hosts or 'localhost'}{parts.path} (schema {self._schema})"

    async def open(self) -> None:
        try:
            self._pool = await self._make_pool(pooled=await self._is_behind_a_pooler())
        except failures() as exc:
            raise self._translated(exc) from exc

    async def _make_pool(self, *, pooled: bool) -> "asyncpg.Pool[asyncpg.Record]":
        pool: asyncpg.Pool[asyncpg.Record] = await _driver().create_pool(
            self._url,
            min_size=1,
            max_size=self._connections,
            timeout=self._connect_timeout,
            command_timeout=self._command_timeout,
            statement_cache_size=0 if pooled else 256,
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
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        try:
            await asyncio.wait_for(pool.close(), self._connect_timeout)
        except (TimeoutError, OSError):
            pool.terminate()

    async def read(self, query: str, values: Values | None = None) -> Rows:
        return await self.write(query, values or {})

    async def write(self, query: str, values: Values) -> Rows:
        found = self._queries[query]
        if len(found.statements) > 1:
            return await self.transact(_only(query, values))
        try:
            async with self._acquired() as connection:
                return await _run(connection, found, values)
        except failures() as exc:
            raise self._translated(exc) from exc

    async def transact(self, script: Script[T]) -> T:
        try:
            async with self._acquired() as connection, connection.transaction():
                return await self._drive(connection, script)
        except failures() as exc:
            raise self._translated(exc) from exc

    async def _drive(self, connection: "asyncpg.pool.PoolConnectionProxy[Any]", script: Script[T]) -> T:
        """Run a script to its end, awaiting each query."""
        try:
            name, values = next(script)
            while True:
                name, values = script.send(await self._perform(connection, self._queries[name], values))
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            script.close()

    async def _perform(self, connection: "asyncpg.pool.PoolConnectionProxy[Any]", query: Query, values: Values | Bulk) -> Rows:
        if isinstance(values, Bulk):
            return await self._load(connection, query, values)
        return await _run(connection, query, values)

    async def _load(self, connection: "asyncpg.pool.PoolConnectionProxy[Any]", query: Query, bulk: Bulk) -> Rows:
        """COPY rows straight to their place; if one is there already, by a table of the moment and from it what is new."""
        try:
            async with connection.transaction():
                await _copy(connection, bulk, bulk.table, self._schema)
            return [{"new": len(bulk.records)}]
        except _driver().UniqueViolationError:
            make, keep = query.statements
            await connection.execute(make.text)
            await _copy(connection, bulk, "incoming")
            return [{"new": int((await connection.execute(keep.text)).rpartition(" ")[2])}]

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
            async with self._acquired() as connection:
                yield connection
        except failures() as exc:
            raise self._translated(exc) from exc

    def _acquired(self) -> "asyncpg.pool.PoolAcquireContext[Any]":
        if self._pool is None:
            raise StoreUnavailable("this store is closed; open it before use")
        return self._pool.acquire(timeout=self._command_timeout)

    def _translated(self, exc: Exception) -> DrumbeatError:
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
        if isinstance(exc, asyncpg.DataError):
            return InvalidInput(f"PostgreSQL cannot keep this value: {exc}")
        if isinstance(exc, asyncpg.UniqueViolationError):
            return AlreadyExists(f"another was quicker: {str(exc.detail or exc).rstrip('.')}; choose another name")
        hint = "; is it running, and is the store's URL right?" if isinstance(exc, OSError) else ""
        return StoreUnavailable(f"PostgreSQL at {self.location}: {str(exc) or type(exc).__name__}{hint}")


async def _run(connection: "asyncpg.pool.PoolConnectionProxy[Any]", query: Query, values: Values) -> Rows:
    rows: Rows = ()
    for statement in query.statements:
        rows = await connection.fetch(statement.text, *(values[name] for name in statement.parameters))
    return rows


async def _copy(connection: "asyncpg.pool.PoolConnectionProxy[Any]", bulk: Bulk, table: str, schema: str | None = None) -> None:
    try:
        await connection.copy_records_to_table(table, schema_name=schema, records=bulk.records, columns=bulk.columns)
    except (OverflowError, UnicodeEncodeError) as exc:
        raise InvalidInput(f"PostgreSQL cannot keep this value: {exc}") from exc


async def _leave_as_it_is(connection: object) -> None:
    """Our statements change no session state, so a connection needs no reset (and no round trip) between uses."""


def _only(query: str, values: Values) -> Script[Rows]:
    return (yield query, values)


@cache
def failures() -> tuple[type[Exception], ...]:
    """What the driver raises, to be said in our own words."""
    asyncpg = _driver()
    return (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError, ssl.SSLError)


@cache
def _driver() -> Any:
    try:
        import asyncpg
    except ImportError as exc:
        raise MissingExtra("the PostgreSQL store", "postgres") from exc
    return asyncpg
