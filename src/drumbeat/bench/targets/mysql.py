"""MySQL or MariaDB as the database under test, through asyncmy: many connections in one thread, prepared statements."""

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from drumbeat.bench.driver.generic import GenericEngine
from drumbeat.bench.driver.interface import Engine, EngineSettings
from drumbeat.bench.driver.records import FAILED
from drumbeat.bench.driver.session_kinds import AsyncSessions, OperationFailure
from drumbeat.bench.model import ErrorClass, Load, ServerSignals, ValueType
from drumbeat.bench.model.server_totals import UPTIME
from drumbeat.bench.model.sql_text import schema_and_name
from drumbeat.bench.targets.interface import NO_STATEMENTS, Column, Statements, TableDescription, TargetTraits
from drumbeat.bench.targets.mysql_session import (
    MysqlSession,
    address_of,
    connect,
    driver,
    failure_of,
    open_session,
    prepare_statements,
)
from drumbeat.bench.targets.placeholders import OperationScript, insert_sql, positional, quoted, quoted_part, scripts
from drumbeat.bench.targets.terms import CLASSES, no_table, timestamp
from drumbeat.bench.values.draw import Draw
from drumbeat.core.errors import InvalidInput, InvalidSettings

T = TypeVar("T")

_CONNECT_LIMIT = timedelta(seconds=30)
_ROWS_AT_ONCE = 1000
#: Errors that a retry cannot fix: no privilege, no such table or column, invalid SQL.
_PERMANENT = frozenset({"1044", "1045", "1049", "1054", "1064", "1142", "1143", "1146"})
_TYPES = {
    "bigint": ValueType.BIGINT,
    "int": ValueType.INT,
    "mediumint": ValueType.INT,
    "smallint": ValueType.INT,
    "tinyint": ValueType.INT,
    "year": ValueType.INT,
    "decimal": ValueType.FLOAT,
    "double": ValueType.FLOAT,
    "float": ValueType.FLOAT,
    "datetime": ValueType.TIMESTAMP,
    "timestamp": ValueType.TIMESTAMP,
    "date": ValueType.TIMESTAMP,
}
_COLUMNS = """
SELECT column_name, data_type, column_type, is_nullable = 'YES', column_key = 'PRI' FROM information_schema.columns
 WHERE table_name = $1 AND table_schema = COALESCE(NULLIF($2, ''), DATABASE()) ORDER BY ordinal_position
"""
_ROWS = """
SELECT table_rows FROM information_schema.tables WHERE table_name = $1 AND table_schema = COALESCE(NULLIF($2, ''), DATABASE())
"""
_SESSIONS = """
SELECT command <> 'Sleep', COALESCE(state, ''), COUNT(*) FROM information_schema.processlist
 WHERE db = DATABASE() AND id <> CONNECTION_ID() GROUP BY 1, 2
"""
_ROW_WAITS = "Innodb_row_lock_current_waits"
# fmt: off
_COUNTERS = (
    "Bytes_received", "Bytes_sent", "Com_commit", "Com_delete", "Com_insert", "Com_rollback", "Com_select", "Com_update",
    "Created_tmp_disk_tables", "Innodb_buffer_pool_read_requests", "Innodb_buffer_pool_reads", "Innodb_data_fsyncs",
    "Innodb_deadlocks", "Innodb_os_log_written", "Innodb_row_lock_time", "Innodb_row_lock_waits", "Innodb_rows_deleted",
    "Innodb_rows_inserted", "Innodb_rows_read", "Innodb_rows_updated", "Questions", "Slow_queries", UPTIME,
)
# fmt: on


class MysqlTarget:
    """One MySQL or MariaDB database under test."""

    traits = TargetTraits(name="mysql", networked=True, signals=True)

    def __init__(self, url: str) -> None:
        self._address = address_of(url)
        self._connection: Any = None
        self._is_open = False
        self._lock = asyncio.Lock()

    @property
    def location(self) -> str:
        return self._address.location

    async def __aenter__(self) -> Self:
        self._is_open = True
        try:
            await self._with_connection(_nothing)
        except OperationFailure as failure:
            raise InvalidSettings(f"{failure}; is the database server running?") from failure
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.ensure_closed()

    async def _with_connection(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Call ``work(connection)``, one call at a time. Reopens a lost connection. Raises OperationFailure."""
        if not self._is_open:
            raise InvalidSettings("this target is not open; use it as: async with open_target(url) as target")
        async with self._lock:
            if self._connection is None:
                self._connection = await connect(self._address, _CONNECT_LIMIT)
            try:
                return await work(self._connection)
            except driver().MySQLError as exc:
                failure = failure_of(exc, 0)
                if failure.lost:
                    self._connection = None
                raise failure from exc

    async def check(self, load: Load) -> None:
        made = scripts(load)
        try:
            await self._with_connection(lambda connection: _check(connection, made))
        except OperationFailure as failure:
            raise InvalidSettings(f"could not prepare the load's statements at {self.location}: {failure}") from failure

    async def describe(self, table: str) -> TableDescription:
        schema, name = schema_and_name(table)
        rows = await self.fetch(_COLUMNS, (name, schema))
        if not rows:
            raise no_table(self.location, table)
        columns = tuple(_column(*row[:4]) for row in rows)
        keys = [row[0] for row in rows if row[4]]
        key = keys[0] if len(keys) == 1 else None
        low, high = await self._bounds(table, next((each for each in columns if each.name == key), None))
        estimate = await self.fetch(_ROWS, (name, schema))
        estimated = estimate[0][0] if estimate else None
        return TableDescription(name=table, columns=columns, key=key, key_low=low, key_high=high, rows=estimated)

    async def _bounds(self, table: str, key: Column | None) -> tuple[int | None, int | None]:
        if key is None or key.type not in (ValueType.INT, ValueType.BIGINT):
            return None, None
        name = quoted_part(key.name, "`")
        low, high = (await self.fetch(f"SELECT MIN({name}), MAX({name}) FROM {quoted(table, '`')}"))[0]  # noqa: S608
        return low, high

    async def define(self, statements: Sequence[str]) -> None:
        for original, statement in zip(statements, mysql_ddl(statements), strict=True):
            await self._checked(f"{original!r}", partial(_query, sql=statement))

    async def load_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        sql = insert_sql(table, columns, "`", "%s")
        return await self._checked(f"the rows of {table}", lambda connection: _load(connection, sql, rows))

    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        text, order = positional(sql)
        arguments = [values[index] for index in order]
        return await self._checked(f"{sql!r}", lambda connection: _fetch(connection, text, arguments))

    async def _checked(self, what: str, work: Callable[[Any], Awaitable[T]]) -> T:
        try:
            return await self._with_connection(work)
        except OperationFailure as failure:
            raise InvalidInput(f"{self.location} refused {what}: {failure}") from failure

    async def signals(self) -> ServerSignals | None:
        try:
            rows = await self._with_connection(lambda connection: _fetch(connection, _SESSIONS, []))
            status = await self._status(_ROW_WAITS)
        except OperationFailure:
            return None
        return signals_of(rows, int(status.get(_ROW_WAITS, 0)))

    async def counters(self, statements: Statements = NO_STATEMENTS) -> Mapping[str, float]:
        try:
            return await self._status(*_COUNTERS)
        except OperationFailure:
            return {}

    async def _status(self, *names: str) -> dict[str, float]:
        listed = ", ".join(f"'{name}'" for name in names)
        sql = f"SHOW GLOBAL STATUS WHERE Variable_name IN ({listed})"
        return {name: float(value) for name, value in await self._with_connection(lambda own: _fetch(own, sql, []))}

    def classify(self, outcome: int, sqlstate: str) -> ErrorClass | None:
        return classify(outcome, sqlstate)

    def engine(self, load: Load, draw: Draw, settings: EngineSettings) -> Engine:
        made = scripts(load)

        async def session() -> MysqlSession:
            return await open_session(
                self._address, made, settings.limit, settings.connect_limit, cached_results=settings.cached_results is not False
            )

        sessions = AsyncSessions(connect=session, enforces_timeout=True)
        return GenericEngine(load=load, draw=draw, settings=settings, sessions=sessions, classify=classify, timestamp=timestamp)


def signals_of(processes: Sequence[Sequence[Any]], row_waits: int) -> ServerSignals:
    """Count all, active and waiting sessions, from rows of (is active, state, count). ``row_waits`` is how many sessions wait
    for row locks, which MySQL's states do not show."""
    states = {state: count for is_active, state, count in processes if is_active and state.startswith("Waiting for ")}
    return ServerSignals(
        at=timedelta(),
        sessions=sum(row[-1] for row in processes),
        active=sum(count for is_active, _, count in processes if is_active),
        waiting=row_waits + sum(states.values()),
        lock_waits=row_waits + sum(count for state, count in states.items() if state.endswith(" lock")),
        wait_events=states | ({"Lock:row": row_waits} if row_waits else {}),
    )


def classify(outcome: int, sqlstate: str) -> ErrorClass | None:
    """Return an operation's error class, from its outcome and MySQL error number (in ``sqlstate``); None if it succeeded."""
    return ErrorClass.CONFIGURATION if outcome == FAILED and sqlstate in _PERMANENT else CLASSES[outcome]


_INDEXED = re.compile(r"\b(?:PRIMARY\s+KEY|UNIQUE|INDEX\s+\S+\s+ON\s+\S+)\s*\(([^)]*)\)", re.IGNORECASE)
_TEXT_COLUMN = re.compile(r"(?P<name>[\w`]+)\s+TEXT\b(?P<key>(?:\s+NOT\s+NULL)?\s+(?:PRIMARY\s+KEY|UNIQUE))?", re.IGNORECASE)


def mysql_ddl(statements: Sequence[str]) -> list[str]:
    """Rewrite portable DDL for MySQL: TIMESTAMP becomes DATETIME(6), and an indexed TEXT becomes VARCHAR(255)."""
    indexed = {
        name.strip().strip("`").lower()
        for statement in statements
        for listed in _INDEXED.findall(statement)
        for name in listed.split(",")
    }

    def bounded(found: re.Match[str]) -> str:
        ends = found["key"] or found["name"].strip("`").lower() in indexed
        return f"{found['name']} VARCHAR(255){found['key'] or ''}" if ends else found[0]

    converted = [re.sub(r"\bTIMESTAMP\b", "DATETIME(6)", statement, flags=re.IGNORECASE) for statement in statements]
    return [_TEXT_COLUMN.sub(bounded, statement) for statement in converted]


def _column(name: str, base: str, native: str, nullable: int) -> Column:
    kind = _TYPES.get(base.lower(), ValueType.TEXT)
    if kind is ValueType.INT and base == "int" and "unsigned" in native:
        kind = ValueType.BIGINT
    return Column(name=name, type=kind, native_type=native.lower(), nullable=bool(nullable))


async def _check(connection: Any, made: Sequence[OperationScript]) -> None:
    for statement in itertools.chain.from_iterable(await prepare_statements(connection, made)):
        await statement.close()


async def _query(connection: Any, sql: str) -> None:
    await connection.query(sql)


async def _nothing(connection: Any) -> None:
    return None


async def _fetch(connection: Any, sql: str, arguments: Sequence[Any]) -> Sequence[Sequence[Any]]:
    if not arguments:
        cursor = connection.cursor()
        await cursor.execute(sql)
        return list(await cursor.fetchall())
    async with await connection.prepare(sql) as statement:
        return list((await statement.execute(arguments)).rows or ())


async def _load(connection: Any, sql: str, rows: Iterable[Sequence[Any]]) -> int:
    """Insert all rows in one transaction, many at a time. Returns how many."""
    await connection.begin()
    try:
        cursor, added = connection.cursor(), 0
        for chunk in _chunks(rows):
            await cursor.executemany(sql, chunk)
            added += len(chunk)
        await connection.commit()
    except BaseException:
        if connection.connected:
            await connection.rollback()
        raise
    return added


def _chunks(rows: Iterable[Sequence[Any]]) -> Iterator[list[tuple[Any, ...]]]:
    rest = iter(rows)
    while chunk := [tuple(row) for row in itertools.islice(rest, _ROWS_AT_ONCE)]:
        yield chunk
