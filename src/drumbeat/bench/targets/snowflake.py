"""Snowflake as the database under test: one session and one thread per connection. Its warehouse reports queued statements."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeVar

from drumbeat.bench.driver.driver_thread import CallThread
from drumbeat.bench.driver.generic import GenericEngine
from drumbeat.bench.driver.interface import Engine, EngineSettings
from drumbeat.bench.driver.session_kinds import BlockingSessions, OperationFailure
from drumbeat.bench.model import ErrorClass, Load, ServerSignals, ValueType
from drumbeat.bench.model.warehouse import WarehouseSettings
from drumbeat.bench.targets.interface import NO_STATEMENTS, RecordedStatements, Statements, TableDescription, TargetTraits
from drumbeat.bench.targets.placeholders import positional, scripts
from drumbeat.bench.targets.snowflake_address import address_of, stored_name
from drumbeat.bench.targets.snowflake_history import read_credits, read_totals
from drumbeat.bench.targets.snowflake_session import (
    Canceller,
    TaggedSession,
    check_statements,
    classify,
    connect,
    driver,
    failure_of,
    message_of,
    session_parameters,
    tag_of,
)
from drumbeat.bench.targets.snowflake_tables import (
    Row,
    description_of,
    like_pattern,
    name_parts,
    quoted,
    shown_name,
    single_key,
    snowflake_ddl,
    value_type,
)
from drumbeat.bench.targets.snowflake_warehouse import changes_of, signals_of
from drumbeat.bench.targets.terms import no_table, timestamp
from drumbeat.bench.values.draw import Draw
from drumbeat.core.errors import InvalidInput, InvalidSettings

log = logging.getLogger(__name__)

T = TypeVar("T")

_CONNECT_LIMIT = timedelta(seconds=30)
_ROWS_AT_ONCE = 5000
_VALUES_AT_ONCE = 60_000  #: with more bound values, the connector would upload them to a stage, which needs a privilege
_MISSING = frozenset({"002003", "002043", "001003", "090105", "090106"})  #: no such table, or no name that a table could have
_OWN_LIMIT = timedelta(seconds=120)


class SnowflakeTarget:
    """One Snowflake database under test."""

    traits = TargetTraits(
        name="snowflake", networked=True, signals=True, sessions=False, totals=False, read_every=timedelta(seconds=5)
    )

    def __init__(self, url: str) -> None:
        self._address = address_of(url)
        self._lane: CallThread | None = None
        self._connection: Any = None
        self._lock = asyncio.Lock()

    @property
    def location(self) -> str:
        return self._address.location

    async def __aenter__(self) -> Self:
        driver()
        self._lane = CallThread("drumbeat-target")
        try:
            await self._run(lambda connection: None)
        except OperationFailure as failure:
            await self._close()
            raise InvalidSettings(f"{failure}; can Snowflake be reached from here, and is the account right?") from failure
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        lane, self._lane = self._lane, None
        connection, self._connection = self._connection, None
        if lane is not None:
            if connection is not None:
                lane.post(connection.close)
            lane.end()

    async def _run(self, work: Callable[[Any], T]) -> T:
        """Call ``work(connection)`` in the connection's thread, one call at a time. Raises OperationFailure."""
        lane = self._lane
        if lane is None:
            raise InvalidSettings("this target is not open; use it as: async with open_target(url) as target")
        async with self._lock:
            return await lane.run(lambda: self._with_connection(work))

    def _with_connection(self, work: Callable[[Any], T]) -> T:
        if self._connection is None or self._connection.is_closed():
            parameters = session_parameters("", _OWN_LIMIT, cached_results=True)
            self._connection = connect(self._address, _CONNECT_LIMIT, parameters, self._address.monitor_warehouse)
        try:
            return work(self._connection)
        except driver().Error as exc:
            failure = failure_of(exc, 0)
            if failure.lost:
                lost, self._connection = self._connection, None
                with suppress(driver().Error):
                    lost.close()
            raise failure from exc

    async def _checked(self, what: str, work: Callable[[Any], T]) -> T:
        try:
            return await self._run(work)
        except OperationFailure as failure:
            raise InvalidInput(f"{self.location} refused {what}: {failure}") from failure

    # Tables

    async def check(self, load: Load) -> None:
        made = scripts(load)
        try:
            await self._run(lambda connection: check_statements(connection, load, made))
        except OperationFailure as failure:
            raise InvalidSettings(f"could not check the load's statements at {self.location}: {failure}") from failure

    async def describe(self, table: str) -> TableDescription:
        name = quoted(table)
        try:
            columns = await self._run(lambda connection: _rows(connection, f"DESCRIBE TABLE {name}"))
            keys = await self._run(lambda connection: _rows(connection, f"SHOW PRIMARY KEYS IN TABLE {name}"))
        except OperationFailure as failure:
            if failure.code in _MISSING:
                raise no_table(self.location, table) from failure
            raise InvalidInput(f"{self.location} refused to describe {table!r}: {failure}") from failure
        shown = await self._shown(table)
        return description_of(table, columns, keys, shown, await self._bounds(name, single_key(keys), columns))

    async def _shown(self, table: str) -> Row | None:
        """Return the table's row of SHOW TABLES, with its kind and its estimated number of rows; None if it is not listed."""
        *place, last = name_parts(table)
        stored, where = stored_name(last), f" IN SCHEMA {quoted('.'.join(place))}" if place else ""
        sql = f"SHOW TABLES LIKE {like_pattern(stored)}{where}"
        rows = await self._checked(f"SHOW TABLES for {table!r}", lambda connection: _rows(connection, sql))
        return next((row for row in rows if row["name"] == stored), None)

    async def _bounds(self, table: str, key: str | None, columns: Sequence[Row]) -> tuple[int | None, int | None]:
        kinds = {shown_name(str(row["name"])): value_type(str(row["type"])) for row in columns}
        if key is None or kinds.get(key) not in (ValueType.INT, ValueType.BIGINT):
            return None, None
        name = quoted(key)
        sql = f"SELECT MIN({name}), MAX({name}) FROM {table}"  # noqa: S608
        [(low, high)] = await self._checked(f"{sql!r}", lambda connection: _fetch(connection, sql, ()))
        return low, high

    async def define(self, statements: Sequence[str]) -> None:
        for statement in snowflake_ddl(statements, self._address.tables):
            await self._checked(f"{statement!r}", lambda connection, sql=statement: _fetch(connection, sql, ()))  # type: ignore[misc]

    async def load_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        names = ", ".join(quoted(column) for column in columns)
        sql = f"INSERT INTO {quoted(table)} ({names}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
        return await self._checked(f"the rows of {table}", lambda connection: _load(connection, sql, rows))

    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        text, order = positional(sql)
        arguments = tuple(values[index] for index in order)
        return await self._checked(f"{sql!r}", lambda connection: _fetch(connection, text, arguments))

    # The warehouse

    async def signals(self) -> ServerSignals | None:
        try:
            row = await self._warehouse()
        except (OperationFailure, InvalidInput):
            return None
        return None if row is None else signals_of(row)

    async def counters(self, statements: Statements = NO_STATEMENTS) -> Mapping[str, float]:
        """Return an empty mapping: Snowflake has no running totals. Its query history is read when a run has ended."""
        return {}

    async def _warehouse(self) -> Row | None:
        name = self._address.warehouse
        if name is None:
            return None
        return await self._run(lambda connection: _shown_warehouse(connection, name))

    async def set_warehouse(self, wanted: WarehouseSettings) -> Sequence[str]:
        """Apply a template's settings to the warehouse; its other settings do not change. Returns the SQL that ran. Raises
        InvalidInput."""
        name = self._address.warehouse
        if name is None:
            raise InvalidInput(
                f"{self.location}: the template changes the warehouse: expected the name of a warehouse, got none; set "
                "target.warehouse.name in the template, add warehouse=NAME to the URL, or set SNOWFLAKE_WAREHOUSE"
            )
        row = await self._checked("to show its warehouse", lambda connection: _shown_warehouse(connection, name))
        if row is None:
            raise InvalidInput(
                f"{self.location} has no warehouse {name!r} that this role may see; create it, or grant USAGE on it"
            )
        statements = changes_of(row, wanted)
        for statement in statements:
            await self._checked(f"{statement!r}", lambda connection, sql=statement: _fetch(connection, sql, ()))  # type: ignore[misc]
            log.info("%s: changed the warehouse as the template says: %s", self.location, statement)
        return statements

    # After a run

    async def recorded_statements(self, run: str, since: datetime, until: datetime, expected: int) -> RecordedStatements:
        """Return what the query history holds about a run's statements, found by their query tag. Raises InvalidInput."""
        tag = tag_of(f"{run}:", "").rstrip(":") + ":"
        return await self._checked(
            "to show its query history", lambda connection: read_totals(connection, tag, since, until, expected)
        )

    async def credits_used(self, since: datetime, until: datetime) -> Mapping[str, float]:
        """Return the credits that the warehouse used in this time (see ``read_credits``). Empty if the address names no
        warehouse, or if the role may not see it. Raises InvalidInput."""
        name = self._address.warehouse
        if name is None:
            return {}
        row = await self._checked("to show its warehouse", lambda connection: _shown_warehouse(connection, name))
        if row is None:
            return {}
        return await self._checked("to show its metering", lambda c: read_credits(c, row, since, until))

    # The load

    def classify(self, outcome: int, sqlstate: str) -> ErrorClass | None:
        return classify(outcome, sqlstate)

    def engine(self, load: Load, draw: Draw, settings: EngineSettings) -> Engine:
        made = scripts(load)
        parameters = session_parameters(settings.tag, settings.limit, cached_results=bool(settings.cached_results))
        canceller = Canceller(
            lambda: connect(self._address, settings.connect_limit, session_parameters("", _OWN_LIMIT, cached_results=True))
        )
        checked = threading.Event()

        def session() -> TaggedSession:
            connection = connect(self._address, settings.connect_limit, parameters)
            try:
                if not checked.is_set():
                    check_statements(connection, load, made)
                    checked.set()
                return TaggedSession(connection, made, settings.tag, canceller.cancel)
            except BaseException:
                connection.close()
                raise

        sessions = BlockingSessions(connect=session)
        return GenericEngine(
            load=load,
            draw=draw,
            settings=settings,
            sessions=sessions,
            classify=classify,
            timestamp=timestamp,
            on_close=canceller.close,
        )


def _fetch(connection: Any, sql: str, arguments: Sequence[Any]) -> Sequence[Sequence[Any]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, tuple(arguments) or None)
        return list(cursor.fetchall())


def _rows(connection: Any, sql: str) -> list[Row]:
    """Run SHOW or DESCRIBE and return its rows by column name."""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        names = [str(column[0]) for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _shown_warehouse(connection: Any, name: str) -> Row | None:
    """Return a warehouse's row of SHOW WAREHOUSES, which works while the warehouse is suspended; None if it is not listed."""
    stored = stored_name(name)
    rows = _rows(connection, f"SHOW WAREHOUSES LIKE {like_pattern(stored)}")
    return next((row for row in rows if row["name"] == stored), None)


def _load(connection: Any, sql: str, rows: Iterable[Sequence[Any]]) -> int:
    """Insert all rows in one transaction, with many rows in each statement. Returns the number of rows."""
    _fetch(connection, "BEGIN", ())
    try:
        rest, added = iter(rows), 0
        at_once = max(1, min(_ROWS_AT_ONCE, _VALUES_AT_ONCE // max(1, sql.count("?"))))
        while chunk := [tuple(row) for row in islice(rest, at_once)]:
            with connection.cursor() as cursor:
                cursor.executemany(sql, chunk)
            added += len(chunk)
        _fetch(connection, "COMMIT", ())
    except BaseException:
        _roll_back(connection)
        raise
    return added


def _roll_back(connection: Any) -> None:
    """Roll back. If that fails, close the connection, which ends its transaction too; the caller raises the first error."""
    try:
        _fetch(connection, "ROLLBACK", ())
    except driver().Error as exc:
        log.info("could not roll back: %s; closing the connection", message_of(exc))
        with suppress(driver().Error):
            connection.close()
