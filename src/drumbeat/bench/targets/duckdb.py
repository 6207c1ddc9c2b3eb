"""DuckDB as the database under test: one file, one process, one thread per connection. Suited to scans, not lookups."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from drumbeat.bench.driver.generic import GenericEngine
from drumbeat.bench.driver.interface import Engine, EngineSettings
from drumbeat.bench.driver.records import FAILED, LOST, TIMED_OUT
from drumbeat.bench.driver.session_kinds import BlockingSessions, OperationFailure, Values
from drumbeat.bench.model import ErrorClass, Load, ServerSignals, ValueType
from drumbeat.bench.model.sql_text import schema_and_name
from drumbeat.bench.targets.embedded import SetupConnection, check_path
from drumbeat.bench.targets.interface import NO_STATEMENTS, Column, Statements, TableDescription, TargetTraits
from drumbeat.bench.targets.placeholders import OperationScript, OperationStep, quoted, quoted_part, scripts
from drumbeat.bench.targets.terms import CLASSES, no_table, timestamp
from drumbeat.bench.values.draw import Draw
from drumbeat.core.errors import InvalidInput, InvalidSettings, MissingExtra

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, Statement

_INTERRUPTED = "57014"
_CODES = (
    ("InterruptException", _INTERRUPTED),
    ("ConstraintException", "23000"),
    ("TransactionException", "40001"),
    ("OutOfRangeException", "22003"),
    ("ConversionException", "22000"),
    ("OutOfMemoryException", "53200"),
    ("ParserException", "42601"),
    ("BinderException", "42000"),
    ("CatalogException", "42P01"),
    ("PermissionException", "42501"),
    ("IOException", "58030"),
    ("ConnectionException", "08003"),
    ("FatalException", "XX000"),
    ("InternalException", "XX000"),
)  #: DuckDB's exceptions have no SQLSTATE; each gets the one that PostgreSQL uses for such an error
_GONE = frozenset({"58030", "08003", "XX000"})
_TYPES = {
    "BIGINT": ValueType.BIGINT,
    "HUGEINT": ValueType.BIGINT,
    "UBIGINT": ValueType.BIGINT,
    "UINTEGER": ValueType.BIGINT,
    "INTEGER": ValueType.INT,
    "SMALLINT": ValueType.INT,
    "TINYINT": ValueType.INT,
    "USMALLINT": ValueType.INT,
    "UTINYINT": ValueType.INT,
    "DOUBLE": ValueType.FLOAT,
    "FLOAT": ValueType.FLOAT,
    "DECIMAL": ValueType.FLOAT,
    "DATE": ValueType.TIMESTAMP,
}
_CONFINED = {
    "enable_external_access": False,  # no other files, no ATTACH, no downloads
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,  # Python variables cannot be queried as tables
    "lock_configuration": True,  # no statement can undo these settings
}  #: users write the statements; these settings let a statement use only the database under test
#: Returns NULL if the opened file is not a DuckDB database but, for example, a CSV file.
_DATABASE_PATH = "SELECT path FROM duckdb_databases() WHERE database_name = current_database()"
_COLUMNS = """
SELECT column_name, data_type, is_nullable FROM duckdb_columns()
 WHERE table_name = $1 AND schema_name = $2 AND database_name = current_database() ORDER BY column_index
"""
_KEY = """
SELECT constraint_column_names FROM duckdb_constraints()
 WHERE table_name = $1 AND schema_name = $2 AND database_name = current_database() AND constraint_type = 'PRIMARY KEY'
"""
_SIZE = """
SELECT estimated_size FROM duckdb_tables() WHERE table_name = $1 AND schema_name = $2 AND database_name = current_database()
"""


class DuckdbTarget:
    """One DuckDB file under test. Only one process can open it at a time, so a run has one worker."""

    traits = TargetTraits(name="duckdb", networked=False, processes=False)

    def __init__(self, path: Path) -> None:
        self._path = path
        self._own = SetupConnection(path, lambda: connect(path))

    @property
    def location(self) -> str:
        return f"duckdb:///{self._path}"

    async def __aenter__(self) -> Self:
        driver()
        self._own.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._own.close()

    async def check(self, load: Load) -> None:
        made = scripts(load, numbered=True)
        await self._own.run(lambda connection: parse_statements(connection, made))

    async def describe(self, table: str) -> TableDescription:
        return await self._own.run(lambda connection: self._describe(connection, table))

    def _describe(self, connection: "DuckDBPyConnection", table: str) -> TableDescription:
        schema, name = schema_and_name(table)
        arguments = [name, schema or "main"]
        columns = tuple(_column(*row) for row in connection.execute(_COLUMNS, arguments).fetchall())
        if not columns:
            raise no_table(self.location, table)
        keys = connection.execute(_KEY, arguments).fetchone()
        size = connection.execute(_SIZE, arguments).fetchone()
        key = keys[0][0] if keys and len(keys[0]) == 1 else None
        low, high = _bounds(connection, table, next((each for each in columns if each.name == key), None))
        rows = size[0] if size else None
        return TableDescription(name=table, columns=columns, key=key, key_low=low, key_high=high, rows=rows)

    async def define(self, statements: Sequence[str]) -> None:
        await self._own.run(lambda connection: self._define(connection, statements), create=True)

    def _define(self, connection: "DuckDBPyConnection", statements: Sequence[str]) -> None:
        for statement in statements:
            try:
                connection.execute(statement)
            except driver().Error as exc:
                raise InvalidInput(f"{self.location} refused {statement!r}: {exc}") from exc

    async def load_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        return await self._own.run(lambda connection: self._load(connection, table, columns, rows))

    def _load(self, connection: "DuckDBPyConnection", table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        listed = list(rows)
        connection.begin()
        try:
            appender = connection.appender(quoted(table), columns=list(columns))
            appender.append_rows(listed)
            appender.flush()
            connection.commit()
        except BaseException as exc:
            roll_back(connection)
            if isinstance(exc, driver().Error):
                raise InvalidInput(f"{self.location} refused the rows of {table}: {exc}; none were added") from exc
            raise
        return len(listed)

    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        return await self._own.run(lambda connection: self._fetch(connection, sql, values))

    def _fetch(self, connection: "DuckDBPyConnection", sql: str, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        try:
            return connection.execute(sql, list(values)).fetchall()
        except driver().Error as exc:
            raise InvalidInput(f"{self.location} refused {sql!r}: {exc}") from exc

    async def signals(self) -> ServerSignals | None:
        return None

    async def counters(self, statements: Statements = NO_STATEMENTS) -> Mapping[str, float]:
        return {}

    def classify(self, outcome: int, sqlstate: str) -> ErrorClass | None:
        return classify(outcome, sqlstate)

    def engine(self, load: Load, draw: Draw, settings: EngineSettings) -> Engine:
        made = scripts(load, numbered=True)

        def session() -> DuckdbSession:
            check_path(self._path, create=False)
            return DuckdbSession(connect(self._path), made)

        sessions = BlockingSessions(connect=session)
        return GenericEngine(load=load, draw=draw, settings=settings, sessions=sessions, classify=classify, timestamp=timestamp)


class DuckdbSession:
    """One connection that runs a load's operations. Statements are parsed once; DuckDB plans them on every execution."""

    def __init__(self, connection: "DuckDBPyConnection", made: Sequence[OperationScript]) -> None:
        self._connection = connection
        self._scripts = made
        self._errors = driver().Error
        try:
            self._statements = parse_statements(connection, made)
        except BaseException:
            connection.close()
            raise

    def execute(self, operation: int, values: Values) -> int:
        script, statements = self._scripts[operation], self._statements[operation]
        if script.is_transaction:
            return self._transact(script, statements, values)
        return self._run(script.steps[0], statements[0], values)

    def interrupt(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()

    def _run(self, step: OperationStep, statement: "Statement", values: Values) -> int:
        try:
            self._connection.execute(statement, values[step.index])
            rows = self._connection.fetchall()
            changed = self._connection.rowcount
        except self._errors as exc:
            raise failure_of(exc, step.index) from exc
        return len(rows) if changed < 0 else changed

    def _transact(self, script: OperationScript, statements: Sequence["Statement"], values: Values) -> int:
        try:
            self._connection.begin()
            rows = sum(self._run(*each, values) for each in zip(script.steps, statements, strict=True))
            self._connection.commit()
        except self._errors as exc:
            roll_back(self._connection)
            raise failure_of(exc, 0) from exc
        except OperationFailure:
            roll_back(self._connection)
            raise
        return rows


def roll_back(connection: "DuckDBPyConnection") -> None:
    """Roll back the transaction. After a failed commit no transaction is active; DuckDB's error that says so is ignored."""
    with suppress(driver().TransactionException):
        connection.rollback()


def driver() -> Any:
    try:
        import duckdb
    except ImportError as exc:
        raise MissingExtra("a DuckDB database under test", "duckdb") from exc
    return duckdb


def connect(path: Path) -> "DuckDBPyConnection":
    """Open a connection limited to the database in this file. Raises InvalidSettings if the file is no DuckDB database.

    DuckDB also opens CSV, JSON and Parquet files, and would show their content to the user. This function asks DuckDB what the
    file is, and does not open the file itself, because closing it again would release DuckDB's lock against other processes.
    """
    try:
        connection: DuckDBPyConnection = driver().connect(str(path), config=dict(_CONFINED))
    except driver().Error as exc:
        raise InvalidSettings(f"cannot use {path} as a DuckDB database: {exc}") from exc
    row = connection.execute(_DATABASE_PATH).fetchone()
    if row is None or row[0] is None:
        connection.close()
        raise InvalidSettings(
            f"expected a DuckDB database at {path}, got another kind of file; import its rows into a database first"
        )
    return connection


def parse_statements(connection: "DuckDBPyConnection", made: Sequence[OperationScript]) -> list[list["Statement"]]:
    """Parse and plan every statement, without running any. Raises InvalidInput, which names the invalid operation."""
    return [[_compiled(connection, script.kind, step) for step in script.steps] for script in made]


def _compiled(connection: "DuckDBPyConnection", kind: str, step: OperationStep) -> "Statement":
    try:
        statements = connection.extract_statements(step.sql)
        if len(statements) == 1:
            connection.execute(f"PREPARE drumbeat_check AS {step.sql}")
            connection.execute("DEALLOCATE drumbeat_check")
    except driver().Error as exc:
        raise InvalidInput(f"operation {kind}: {exc} in the SQL: {step.sql}") from exc
    if len(statements) != 1:
        raise InvalidInput(f"operation {kind}: expected one statement, got {len(statements)} in: {step.sql}")
    statement: Statement = statements[0]
    return statement


def failure_of(error: Exception, index: int) -> OperationFailure:
    code = code_of(error)
    outcome = TIMED_OUT if code == _INTERRUPTED else LOST if code in _GONE else FAILED
    return OperationFailure(outcome, code, str(error).partition("\n")[0], statement=index)


def code_of(error: Exception) -> str:
    return next((code for name, code in _CODES if isinstance(error, getattr(driver(), name))), "HY000")


def classify(outcome: int, sqlstate: str) -> ErrorClass | None:
    """Return the error class for an operation's outcome and SQLSTATE (see ``_CODES``); None if the operation succeeded."""
    return ErrorClass.CONFIGURATION if outcome == FAILED and sqlstate.startswith("42") else CLASSES[outcome]


def _column(name: str, native: str, nullable: bool) -> Column:
    base = re.sub(r"\(.*\)", "", native).strip()
    kind = ValueType.TIMESTAMP if base.startswith("TIMESTAMP") else _TYPES.get(base, ValueType.TEXT)
    return Column(name=name, type=kind, native_type=native.lower(), nullable=nullable)


def _bounds(connection: "DuckDBPyConnection", table: str, key: Column | None) -> tuple[int | None, int | None]:
    if key is None or key.type not in (ValueType.INT, ValueType.BIGINT):
        return None, None
    name = quoted_part(key.name)
    row = connection.execute(f"SELECT MIN({name}), MAX({name}) FROM {quoted(table)}").fetchone()  # noqa: S608
    return (row[0], row[1]) if row else (None, None)
