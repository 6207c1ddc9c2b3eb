"""SQLite as the database under test: one file, Python's sqlite3 module, one thread per connection."""

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from drumbeat.bench.driver.generic import GenericEngine
from drumbeat.bench.driver.interface import Engine, EngineSettings
from drumbeat.bench.driver.records import FAILED, LOST, TIMED_OUT
from drumbeat.bench.driver.session_kinds import BlockingSessions, OperationFailure, Values
from drumbeat.bench.model import ErrorClass, Load, ServerSignals, ValueType
from drumbeat.bench.model.sql_text import schema_and_name
from drumbeat.bench.targets.embedded import SetupConnection, check_path
from drumbeat.bench.targets.interface import NO_STATEMENTS, Column, Statements, TableDescription, TargetTraits
from drumbeat.bench.targets.placeholders import (
    OperationScript,
    OperationStep,
    insert_sql,
    positional,
    quoted,
    quoted_part,
    scripts,
)
from drumbeat.bench.targets.terms import CLASSES, EPOCH, no_table
from drumbeat.bench.values.draw import Draw
from drumbeat.core.errors import InvalidInput, InvalidSettings

SYNCHRONOUS = ("NORMAL", "FULL", "OFF", "EXTRA")
_MMAP_BYTES = 256 << 20
_NO_INTEGER = 1 << 63  #: the first number too large for SQLite's integers
_BUSY, _INTERRUPT = 5, 9
_GONE = frozenset({10, 11, 14, 26})  #: error codes: read error, corrupt, cannot open, not a database
_NOT_AUTHORIZED = 23
_PERMANENT = frozenset({3, 8, _NOT_AUTHORIZED})  #: error codes: permission, read-only, not authorized
_TEMPORARY = ""  #: the file name with which a plain VACUUM attaches its temporary database
_NATIVE = frozenset({"load_extension", "fts3_tokenizer"})  #: SQL functions that can run native code from outside SQLite
_PROCESS_WIDE = frozenset({"temp_store_directory", "data_store_directory", "hard_heap_limit", "soft_heap_limit"})
"""Pragmas that affect the whole process, including Drumbeat's own store, not only one connection."""

_CONFINED = (
    "a tested statement is allowed to access only its own database; remove ATTACH, DETACH, VACUUM INTO, load_extension, "
    "fts3_tokenizer and pragmas that affect the whole process"
)
_COLUMNS = 'SELECT name, type, "notnull", pk FROM pragma_table_info(?, ?) ORDER BY cid'


class SqliteTarget:
    """One SQLite file under test. ``define`` switches the file to a write-ahead log; nothing else changes its journal mode."""

    traits = TargetTraits(name="sqlite", networked=False)

    def __init__(self, path: Path, *, synchronous: str = "NORMAL") -> None:
        if synchronous not in SYNCHRONOUS:
            raise InvalidSettings(f"expected the option synchronous to be one of {', '.join(SYNCHRONOUS)}, got {synchronous!r}")
        self._path = path
        self._synchronous = synchronous
        self._own = SetupConnection(path, lambda: connect(path, synchronous, timedelta(seconds=30)))

    @property
    def location(self) -> str:
        return f"sqlite:///{self._path}"

    async def __aenter__(self) -> Self:
        self._own.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._own.close()

    async def check(self, load: Load) -> None:
        await self._own.run(lambda connection: check_statements(connection, scripts(load)))

    async def describe(self, table: str) -> TableDescription:
        return await self._own.run(lambda connection: self._describe(connection, table))

    def _describe(self, connection: sqlite3.Connection, table: str) -> TableDescription:
        schema, name = schema_and_name(table)
        known = {row[1] for row in connection.execute("PRAGMA database_list")}
        rows = connection.execute(_COLUMNS, (name, schema or "main")).fetchall() if (schema or "main") in known else ()
        if not rows:
            raise no_table(self.location, table)
        columns = tuple(_column(*row[:3]) for row in rows)
        keys = [name for name, _, _, key_position in rows if key_position]
        key = keys[0] if len(keys) == 1 else None
        low, high = _bounds(connection, table, next((each for each in columns if each.name == key), None))
        if not isinstance(low, int | None) or not isinstance(high, int | None):
            columns = tuple(replace(each, type=ValueType.TEXT) if each.name == key else each for each in columns)
            low, high = None, None
        rows = connection.execute(f"SELECT COUNT(*) FROM {quoted(table)}").fetchone()[0]  # noqa: S608
        return TableDescription(name=table, columns=columns, key=key, key_low=low, key_high=high, rows=rows)

    async def define(self, statements: Sequence[str]) -> None:
        await self._own.run(lambda connection: self._define(connection, statements), create=True)

    def _define(self, connection: sqlite3.Connection, statements: Sequence[str]) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        for statement in statements:
            try:
                connection.execute(sqlite_ddl(statement))
            except sqlite3.Error as exc:
                raise InvalidInput(f"{self.location} refused {statement!r}: {message_of(exc)}") from exc

    async def load_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        return await self._own.run(lambda connection: self._load(connection, table, columns, rows))

    def _load(self, connection: sqlite3.Connection, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        connection.execute("BEGIN IMMEDIATE")
        try:
            added = connection.executemany(insert_sql(table, columns), (sqlite_values(row) for row in rows)).rowcount
            connection.execute("COMMIT")
        except BaseException as exc:
            connection.rollback()
            if isinstance(exc, sqlite3.Error):
                raise InvalidInput(f"{self.location} refused the rows of {table}: {exc}; none were added") from exc
            raise
        return max(added, 0)

    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        text, order = positional(sql)
        arguments = sqlite_values([values[index] for index in order])
        return await self._own.run(lambda connection: self._fetch(connection, text, arguments))

    def _fetch(self, connection: sqlite3.Connection, sql: str, arguments: Sequence[Any]) -> Sequence[Sequence[Any]]:
        try:
            return connection.execute(sql, arguments).fetchall()
        except sqlite3.Error as exc:
            raise InvalidInput(f"{self.location} refused {sql!r}: {message_of(exc)}") from exc

    async def signals(self) -> ServerSignals | None:
        return None

    async def counters(self, statements: Statements = NO_STATEMENTS) -> Mapping[str, float]:
        return {}

    def classify(self, outcome: int, sqlstate: str) -> ErrorClass | None:
        return classify(outcome, sqlstate)

    def engine(self, load: Load, draw: Draw, settings: EngineSettings) -> Engine:
        made = scripts(load)

        def session() -> SqliteSession:
            check_path(self._path, create=False)
            return SqliteSession(connect(self._path, self._synchronous, settings.limit), made)

        sessions = BlockingSessions(connect=session)
        return GenericEngine(load=load, draw=draw, settings=settings, sessions=sessions, classify=classify, timestamp=timestamp)


class SqliteSession:
    """One connection that runs a load's operations. The sqlite3 module caches the compiled statements."""

    def __init__(self, connection: sqlite3.Connection, made: Sequence[OperationScript]) -> None:
        self._connection = connection
        self._scripts = made
        try:
            check_statements(connection, made)
        except BaseException:
            connection.close()
            raise

    def execute(self, operation: int, values: Values) -> int:
        script = self._scripts[operation]
        if script.is_transaction:
            return self._transact(script, values)
        step = script.steps[0]
        return self._run(step, values[step.index])

    def interrupt(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()

    def _run(self, step: OperationStep, values: Sequence[Any]) -> int:
        try:
            cursor = self._connection.execute(step.sql, step.arguments(values))
            return len(cursor.fetchall()) or max(cursor.rowcount, 0)
        except sqlite3.Error as exc:
            raise failure_of(exc, step.index) from exc

    def _transact(self, script: OperationScript, values: Values) -> int:
        try:
            self._connection.execute("BEGIN" if script.reads else "BEGIN IMMEDIATE")
            rows = sum(self._run(step, values[step.index]) for step in script.steps)
            self._connection.execute("COMMIT")
        except sqlite3.Error as exc:
            self._roll_back()
            raise failure_of(exc, 0) from exc
        except OperationFailure:
            self._roll_back()
            raise
        return rows

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def connect(path: Path, synchronous: str, lock_timeout: timedelta) -> sqlite3.Connection:
    """Open a connection that waits up to ``lock_timeout`` for locks of other connections. Any thread can interrupt it."""
    try:
        connection = sqlite3.connect(path, isolation_level=None, timeout=lock_timeout.total_seconds(), check_same_thread=False)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(f"PRAGMA mmap_size = {_MMAP_BYTES}")
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        connection.set_authorizer(_confine)
    except sqlite3.DatabaseError as exc:
        raise InvalidSettings(f"cannot use {path} as a SQLite database: {exc}") from exc
    return connection


def _confine(action: int, first: str | None, second: str | None, database: str | None, source: str | None) -> int:
    """SQLite's authorizer callback: refuse SQL that reaches beyond this database. Refusing ATTACH also refuses VACUUM INTO."""
    match action:
        case sqlite3.SQLITE_ATTACH:
            is_refused = first != _TEMPORARY
        case sqlite3.SQLITE_DETACH:
            is_refused = True
        case sqlite3.SQLITE_FUNCTION:
            is_refused = (second or "").lower() in _NATIVE
        case sqlite3.SQLITE_PRAGMA:
            is_refused = (first or "").lower() in _PROCESS_WIDE
        case _:
            is_refused = False
    return sqlite3.SQLITE_DENY if is_refused else sqlite3.SQLITE_OK


def check_statements(connection: sqlite3.Connection, made: Sequence[OperationScript]) -> None:
    """Compile every statement, without running any. Raises InvalidInput, which names the invalid operation."""
    for script in made:
        for step in script.steps:
            try:
                connection.execute(f"EXPLAIN {step.sql}", [None] * len(step.order)).close()
            except (sqlite3.Error, sqlite3.Warning) as exc:
                raise InvalidInput(f"operation {script.kind}: {message_of(exc)} in the SQL: {step.sql}") from exc


def failure_of(error: sqlite3.Error, index: int) -> OperationFailure:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return OperationFailure(LOST, "", str(error), statement=index)
    if code in (_BUSY, _INTERRUPT):
        return OperationFailure(TIMED_OUT, str(code), str(error), statement=index)
    return OperationFailure(LOST if code & 0xFF in _GONE else FAILED, str(code), message_of(error), statement=index)


def message_of(error: Exception) -> str:
    """Return SQLite's error message. If ``_confine`` refused the statement, add what statements are not allowed to do."""
    if getattr(error, "sqlite_errorcode", None) != _NOT_AUTHORIZED:
        return str(error)
    return f"{error}: {_CONFINED}"


def classify(outcome: int, sqlstate: str) -> ErrorClass | None:
    """Return the error class for an operation's outcome and extended SQLite error code; None if it succeeded."""
    if outcome == FAILED and sqlstate.isdigit() and int(sqlstate) & 0xFF in _PERMANENT:
        return ErrorClass.CONFIGURATION
    return CLASSES[outcome]


def sqlite_ddl(statement: str) -> str:
    """Rewrite portable DDL for SQLite: BIGINT becomes INTEGER, as only an INTEGER key needs no separate index."""
    return re.sub(r"\bBIGINT\b", "INTEGER", statement, flags=re.IGNORECASE)


def timestamp(microseconds: int) -> str:
    return text_of(EPOCH + timedelta(microseconds=microseconds))


def text_of(moment: datetime) -> str:
    return moment.isoformat(" ")


def sqlite_values(row: Sequence[Any]) -> list[Any]:
    """Convert values to types that SQLite stores: dates and times to text, decimals to numbers, or to text if they have too
    many digits for a number."""
    return [_plain(value) for value in row]


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return text_of(value)
        case date():
            return value.isoformat()
        case Decimal():
            return _number(value)
        case _:
            return value


def _number(value: Decimal) -> int | float | str:
    if value == value.to_integral_value() and abs(value) < _NO_INTEGER:
        return int(value)
    near = float(value)
    return near if Decimal(repr(near)) == value else str(value)


def _column(name: str, declared: str, not_null: int) -> Column:
    return Column(name=name, type=_type(declared.upper()), native_type=declared.lower(), nullable=not not_null)


def _type(declared: str) -> ValueType:
    """Return the value type of a declared column type: by SQLite's affinity rules, plus dates and times."""
    if "TIME" in declared or "DATE" in declared:
        return ValueType.TIMESTAMP
    if "INT" in declared:
        return ValueType.BIGINT
    numbers = ("REAL", "FLOA", "DOUB", "NUM", "DEC")
    return ValueType.FLOAT if any(word in declared for word in numbers) else ValueType.TEXT


def _bounds(connection: sqlite3.Connection, table: str, key: Column | None) -> tuple[object, object]:
    """Return the lowest and highest key of a whole number type. SQLite also stores fractions and text in such a column."""
    if key is None or key.type is not ValueType.BIGINT:
        return None, None
    name = quoted_part(key.name)
    sql = f"SELECT (SELECT MIN({name}) FROM {quoted(table)}), (SELECT MAX({name}) FROM {quoted(table)})"  # noqa: S608
    low, high = connection.execute(sql).fetchone()
    return low, high
