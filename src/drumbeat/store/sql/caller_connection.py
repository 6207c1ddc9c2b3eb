"""Runs queries on a connection that the caller has opened, inside the caller's own transaction.

The drivers and frameworks are recognised by the names of their classes, and not imported: asyncpg, psycopg 3, sqlite3,
aiosqlite, SQLAlchemy 2 and Django. A connection of SQLAlchemy or Django is unwrapped to the connection of its driver.
"""

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from drumbeat.core.errors import InvalidInput
from drumbeat.store.sql.database import Rows, Values
from drumbeat.store.sql.queries import Query, SqlStatement

_NAMED = re.compile(r"(?<![:\w]):([a-z]\w*)")
_NAMED_JSON = re.compile(r"CAST\((:[a-z]\w*) AS (jsonb?)\)")
_IDLE = 0  #: psycopg's transaction status of a connection without a transaction
_DRIVERS = {
    "asyncpg": ("Connection", "PoolConnectionProxy"),
    "psycopg": ("Connection", "AsyncConnection"),
    "sqlite3": ("Connection",),
    "aiosqlite": ("Connection",),
    "sqlalchemy": ("Connection", "Session", "scoped_session", "AsyncConnection", "AsyncSession", "async_scoped_session"),
    "django": ("BaseDatabaseWrapper", "ConnectionProxy"),
}
_EXPECTED = "a connection of asyncpg, psycopg 3, sqlite3, aiosqlite or Django, or a connection or session of SQLAlchemy 2"


class DriverRow:
    """One row of a result. A column is read by its name or position."""

    __slots__ = ("_names", "_values")

    def __init__(self, names: Sequence[str], values: Sequence[Any]) -> None:
        self._names = names
        self._values = values

    def __getitem__(self, column: Any, /) -> Any:
        return self._values[self._names.index(column) if isinstance(column, str) else column]


class BlockingDriver(Protocol):
    """A caller's connection whose driver blocks until a query has run."""

    name: str  #: the name of the database product

    @property
    def is_open(self) -> bool:
        """Whether writes stay uncommitted until the caller commits: a transaction is open, or the next write begins one."""
        ...

    @property
    def has_begun(self) -> bool:
        """Whether a transaction is open already."""
        ...

    def fetch(self, query: Query, values: Values) -> Rows: ...


class AwaitedDriver(Protocol):
    """A caller's connection whose driver is asynchronous. Its methods are those of BlockingDriver."""

    name: str

    @property
    def is_open(self) -> bool: ...

    @property
    def has_begun(self) -> bool: ...

    async def fetch(self, query: Query, values: Values) -> Rows: ...


def is_awaited(connection: object) -> bool:
    """Whether the connection's driver is asynchronous. Raises InvalidInput for an object that is no known connection."""
    package, name = _class_of(connection)
    return package in ("asyncpg", "aiosqlite") or name.lower().startswith("async")


def blocking_driver(connection: Any) -> BlockingDriver:
    """Return the driver of a connection that blocks. Begins a transaction of SQLAlchemy if none is open."""
    package, name = _class_of(connection)
    if package == "django":
        connection.ensure_connection()
        return blocking_driver(connection.connection)
    if package == "sqlalchemy":
        if name != "Connection":
            return blocking_driver(connection.connection())
        connection.exec_driver_sql("SELECT 1")  # so that SQLAlchemy begins its transaction, and commits it later
        return blocking_driver(connection.connection.driver_connection)
    return _Psycopg(connection) if package == "psycopg" else _Sqlite(connection)


async def awaited_driver(connection: Any) -> AwaitedDriver:
    """Return the driver of an asynchronous connection. Begins a transaction of SQLAlchemy if none is open."""
    package, name = _class_of(connection)
    if package == "sqlalchemy":
        if name != "AsyncConnection":
            return await awaited_driver(await connection.connection())
        await connection.exec_driver_sql("SELECT 1")  # so that SQLAlchemy begins its transaction, and commits it later
        return await awaited_driver((await connection.get_raw_connection()).driver_connection)
    if package == "asyncpg":
        return _Asyncpg(connection)
    return _AwaitedPsycopg(connection) if package == "psycopg" else _AwaitedSqlite(connection)


def _class_of(connection: object) -> tuple[str, str]:
    """Return the package and name of a connection's class, or of a known base class. Raises InvalidInput if none is known."""
    for kind in type(connection).__mro__:
        package = kind.__module__.partition(".")[0]
        if kind.__name__ in _DRIVERS.get(package, ()):
            return package, kind.__name__
    kind = type(connection)
    raise InvalidInput(f"connection: expected {_EXPECTED}, got {kind.__module__}.{kind.__qualname__}")


class _PsycopgState:
    """The state of a connection of psycopg 3, blocking or asynchronous."""

    name = "PostgreSQL"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def is_open(self) -> bool:
        return not self._connection.autocommit or self.has_begun

    @property
    def has_begun(self) -> bool:
        return bool(self._connection.info.transaction_status != _IDLE)


class _Psycopg(_PsycopgState):
    """A blocking connection of psycopg 3."""

    def fetch(self, query: Query, values: Values) -> Rows:
        rows: Rows = ()
        for statement in query.statements:
            with sys.modules["psycopg"].Cursor(self._connection, row_factory=_rows_of) as cursor:
                cursor.execute(_percent_text(statement), _bound(statement, values))
                rows = cursor.fetchall() if cursor.description else ()
        return rows


class _AwaitedPsycopg(_PsycopgState):
    """An asynchronous connection of psycopg 3."""

    async def fetch(self, query: Query, values: Values) -> Rows:
        rows: Rows = ()
        for statement in query.statements:
            async with sys.modules["psycopg"].AsyncCursor(self._connection, row_factory=_rows_of) as cursor:
                await cursor.execute(_percent_text(statement), _bound(statement, values))
                rows = await cursor.fetchall() if cursor.description else ()
        return rows


class _Asyncpg:
    """A connection of asyncpg, or one that a pool of asyncpg lends."""

    name = "PostgreSQL"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def is_open(self) -> bool:
        return bool(self._connection.is_in_transaction())

    @property
    def has_begun(self) -> bool:
        return bool(self._connection.is_in_transaction())

    async def fetch(self, query: Query, values: Values) -> Rows:
        rows: Rows = ()
        for statement in query.statements:
            given = (values[name] for name in statement.parameters)
            rows = await self._connection.fetch(_numbered_text(statement), *given)
        return rows


class _SqliteState:
    """The state of a connection of sqlite3 or aiosqlite."""

    name = "SQLite"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, or the driver would begin one at the next write."""
        commits_by_itself = self._connection.isolation_level is None or getattr(self._connection, "autocommit", None) is True
        return self.has_begun or not commits_by_itself

    @property
    def has_begun(self) -> bool:
        return bool(self._connection.in_transaction)


class _Sqlite(_SqliteState):
    """A connection of sqlite3."""

    def fetch(self, query: Query, values: Values) -> Rows:
        rows: Rows = ()
        for statement in query.statements:
            cursor = self._connection.cursor()
            cursor.row_factory = None
            found = cursor.execute(statement.text, _bound(statement, values)).fetchall()
            rows = _named_rows(cursor.description, found)
            cursor.close()
        return rows


class _AwaitedSqlite(_SqliteState):
    """A connection of aiosqlite."""

    async def fetch(self, query: Query, values: Values) -> Rows:
        rows: Rows = ()
        for statement in query.statements:
            cursor = await self._connection.cursor()
            cursor.row_factory = None
            await cursor.execute(statement.text, _bound(statement, values))
            rows = _named_rows(cursor.description, await cursor.fetchall())
            await cursor.close()
        return rows


def _rows_of(cursor: Any) -> Callable[[Sequence[Any]], DriverRow]:
    """Return a function that makes a row from the values of its columns, as psycopg expects of a row factory."""
    names = [column.name for column in cursor.description or ()]
    return lambda values: DriverRow(names, values)


def _named_rows(description: Iterable[Sequence[Any]] | None, rows: Iterable[Sequence[Any]]) -> Rows:
    names = [column[0] for column in description or ()]
    return [DriverRow(names, values) for values in rows]


def _bound(statement: SqlStatement, values: Values) -> dict[str, Any]:
    return {name: values[name] for name in statement.parameters}


@lru_cache(maxsize=256)
def _percent_text(statement: SqlStatement) -> str:
    """Return the SQL with its values bound as ``%(name)s``."""
    return _NAMED.sub(r"%(\1)s", statement.text.replace("%", "%%"))


@lru_cache(maxsize=256)
def _numbered_text(statement: SqlStatement) -> str:
    """Return the SQL with its values bound as ``$1``, ``$2``, … JSON is bound as text, since the caller may have set a codec
    for JSON, which would encode the text once more."""
    text = _NAMED_JSON.sub(r"CAST(CAST(\1 AS text) AS \2)", statement.text)
    return _NAMED.sub(lambda found: f"${statement.parameters.index(found.group(1)) + 1}", text)
