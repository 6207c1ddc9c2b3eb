"""PostgreSQL as the database under test: Drumbeat's own fast protocol engine, and the server's statistics views."""

import asyncio
import logging
import re
import ssl
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from drumbeat.bench.driver.engine import PostgresEngine
from drumbeat.bench.driver.interface import Engine, EngineSettings
from drumbeat.bench.driver.pgwire import PostgresError
from drumbeat.bench.driver.postgres_terms import classify
from drumbeat.bench.driver.session import PASSWORD_VARIABLE, PostgresAddress, address_of, not_trusted, open_session, tls_context
from drumbeat.bench.model import ErrorClass, Load, ServerSignals, ValueType
from drumbeat.bench.model.sql_text import schema_and_name, without_comments
from drumbeat.bench.targets.interface import NO_STATEMENTS, Column, Statements, TableDescription, TargetTraits
from drumbeat.bench.targets.placeholders import quoted as table_name, quoted_part
from drumbeat.bench.targets.terms import no_table
from drumbeat.bench.values.draw import Draw
from drumbeat.core.errors import InvalidInput, InvalidSettings, MissingExtra

if TYPE_CHECKING:
    import asyncpg

log = logging.getLogger(__name__)

_TYPES = {
    "int2": ValueType.INT,
    "int4": ValueType.INT,
    "int8": ValueType.BIGINT,
    "float4": ValueType.FLOAT,
    "float8": ValueType.FLOAT,
    "numeric": ValueType.FLOAT,
    "timestamp": ValueType.TIMESTAMP,
    "timestamptz": ValueType.TIMESTAMP,
    "date": ValueType.TIMESTAMP,
}

_COLUMNS = """
SELECT a.attname AS name, t.typname AS type, format_type(a.atttypid, a.atttypmod) AS native, NOT a.attnotnull AS nullable,
       COALESCE((SELECT i.indnkeyatts = 1 FROM pg_index i
                  WHERE i.indrelid = c.oid AND i.indisprimary AND a.attnum = i.indkey[0]), false) AS is_key
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid
 WHERE c.oid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

_ACTIVITY = """
SELECT state = 'active' AS active, wait_event_type AS type, wait_event AS event, COUNT(*) AS sessions
  FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
 GROUP BY 1, 2, 3
"""
_STATEMENT_TOTALS = ("calls", "exec_ms", "rows", "shared_blks_hit", "shared_blks_read", "wal_bytes")
_CONSTANT = re.compile(r"'(?:[^']|'')*'|\$\d+|\b\d+(?:\.\d+)?\b")
_CONTENTION = frozenset({"Lock", "LWLock", "BufferPin"})  #: the types of wait events that other sessions cause

# A crash resets every total at once; a clean restart resets none. So ``since`` is the earlier reset time of two views that
# users rarely reset by hand.
_DATABASE = """
SELECT xact_commit, xact_rollback, blks_read, blks_hit, tup_returned, tup_fetched, tup_inserted, tup_updated, tup_deleted,
       deadlocks, temp_bytes, blk_read_time, blk_write_time,
       EXTRACT(EPOCH FROM GREATEST(d.stats_reset, LEAST(b.stats_reset, a.stats_reset))) AS since
  FROM pg_stat_database d, pg_stat_bgwriter b, pg_stat_archiver a WHERE datname = current_database()
"""

_STATEMENTS = """
SELECT COALESCE(SUM(calls), 0) AS calls, COALESCE(SUM(total_exec_time), 0) AS exec_ms, COALESCE(SUM(rows), 0) AS rows,
       COALESCE(SUM(shared_blks_hit), 0) AS shared_blks_hit, COALESCE(SUM(shared_blks_read), 0) AS shared_blks_read,
       COALESCE(SUM(wal_records), 0) AS wal_records, COALESCE(SUM(wal_bytes), 0) AS wal_bytes,
       (SELECT EXTRACT(EPOCH FROM LEAST(b.stats_reset, a.stats_reset)) FROM pg_stat_bgwriter b, pg_stat_archiver a) AS since
  FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = current_database()
"""

_BY_STATEMENT = """
SELECT s.query, s.calls, s.total_exec_time AS exec_ms, s.rows, s.shared_blks_hit, s.shared_blks_read, s.wal_bytes
  FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = current_database()
"""

_WRONG_PASSWORD = "28P01"  # noqa: S105  (a SQLSTATE)
_CONNECT_LIMIT = timedelta(seconds=30)
_STATISTICS_TIMEOUT = timedelta(seconds=5)  #: an answer that takes longer is out of date


def _login_error(address: PostgresAddress, error: Exception) -> str:
    """Return why the login failed. If no password was given, the text says that instead of the server's "wrong password"."""
    if getattr(error, "sqlstate", None) != _WRONG_PASSWORD or address.password:
        return str(error)
    return f"it asks for a password and none was given; set {PASSWORD_VARIABLE}"


class PostgresTarget:
    """One PostgreSQL database under test."""

    traits = TargetTraits(name="postgresql", networked=True, signals=True)

    def __init__(self, url: str) -> None:
        self._address: PostgresAddress = address_of(url)
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._has_statements = False

    @property
    def location(self) -> str:
        return self._address.location

    async def __aenter__(self) -> Self:
        self._connection = await self._connect()
        found = await self._own.fetchval("SELECT 1 FROM pg_extension WHERE extname = 'pg_stat_statements'")
        self._has_statements = bool(found)
        return self

    async def _connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        driver, address = _driver(), self._address
        try:
            connection: asyncpg.Connection[asyncpg.Record] = await driver.connect(
                host=address.host,
                port=address.port,
                user=address.user,
                database=address.database,
                password=address.password or None,
                ssl=_tls(address),
                timeout=_CONNECT_LIMIT.total_seconds(),
                statement_cache_size=0,
                server_settings=dict(address.session_settings),
            )
        except (driver.InvalidAuthorizationSpecificationError, driver.InvalidCatalogNameError) as exc:
            raise InvalidSettings(f"{self.location} refused user {address.user!r}: {_login_error(address, exc)}") from exc
        except ssl.SSLCertVerificationError as exc:
            raise InvalidSettings(not_trusted(address, exc)) from exc
        except (OSError, driver.PostgresError) as exc:
            raise InvalidSettings(f"cannot connect to {self.location}: {exc}; is it running?") from exc
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close(timeout=5)

    @property
    def _own(self) -> "asyncpg.Connection[asyncpg.Record]":
        if self._connection is None:
            raise InvalidSettings("this target is not open; use it as: async with open_target(url) as target")
        return self._connection

    async def check(self, load: Load) -> None:
        try:
            session = await asyncio.to_thread(open_session, self._address, load, _CONNECT_LIMIT)
        except (OSError, PostgresError) as exc:
            raise InvalidSettings(f"cannot connect to {self.location}: {exc}") from exc
        session.close()

    async def describe(self, table: str) -> TableDescription:
        try:
            rows = await self._own.fetch(_COLUMNS, table_name(table))
        except _driver().PostgresError as exc:
            raise InvalidInput(f"{self.location} has no table {table!r}: {exc}") from exc
        if not rows:
            raise no_table(self.location, table)
        columns = tuple(_column(row) for row in rows)
        key = next((row["name"] for row in rows if row["is_key"]), None)
        low, high = await self._bounds(table, key, columns)
        rows = await self._own.fetchval("SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass($1)", table_name(table))
        return TableDescription(name=table, columns=columns, key=key, key_low=low, key_high=high, rows=rows)

    async def _bounds(self, table: str, key: str | None, columns: Sequence[Column]) -> tuple[int | None, int | None]:
        numeric = {column.name for column in columns if column.type in (ValueType.INT, ValueType.BIGINT)}
        if key is None or key not in numeric:
            return None, None
        [(low, high)] = await self.fetch(f"SELECT MIN({quoted_part(key)}), MAX({quoted_part(key)}) FROM {table_name(table)}")  # noqa: S608
        return low, high

    async def define(self, statements: Sequence[str]) -> None:
        for statement in statements:
            try:
                await self._own.execute(statement)
            except _driver().PostgresError as exc:
                raise InvalidInput(f"{self.location} refused {statement!r}: {exc}") from exc

    async def load_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        listed = list(rows)
        schema, name = schema_and_name(table)
        try:
            await self._own.copy_records_to_table(name, schema_name=schema or None, columns=list(columns), records=listed)
        except _driver().PostgresError as exc:
            raise InvalidInput(f"{self.location} refused {len(listed)} rows for {table}: {exc}") from exc
        return len(listed)

    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        try:
            return [tuple(row.values()) for row in await self._own.fetch(sql, *values)]
        except _driver().PostgresError as exc:
            raise InvalidInput(f"{self.location} refused {sql!r}: {exc}") from exc

    async def signals(self) -> ServerSignals | None:
        activity = await self._read_statistics(_ACTIVITY)
        return None if activity is None else signals_of([tuple(row.values()) for row in activity])

    async def counters(self, statements: Statements = NO_STATEMENTS) -> Mapping[str, float]:
        found: dict[str, float] = {}
        for name, sql in {"database": _DATABASE, **({"statements": _STATEMENTS} if self._has_statements else {})}.items():
            for row in await self._read_statistics(sql) or ():
                found |= {f"{name}.{column}": float(value or 0) for column, value in row.items()}
        if self._has_statements and statements and "statements.since" in found:
            found |= await self._by_kind(statements, found["statements.since"])
        return found

    async def _by_kind(self, statements: Statements, since: float) -> dict[str, float]:
        kinds = kinds_by_text(statements)
        rows = await self._read_statistics(_BY_STATEMENT)
        if rows is None:
            return {}
        return totals_by_kind(kinds, [dict(row.items()) for row in rows]) | {
            f"{kind}.since": since for kind in {*kinds.values()}
        }

    async def _read_statistics(self, sql: str) -> "Sequence[asyncpg.Record] | None":
        """Run a query on the server's statistics; None if the server does not answer. Reopens a lost connection."""
        driver = _driver()
        try:
            if self._own.is_closed():
                self._connection = await self._connect()
            return await self._own.fetch(sql, timeout=_STATISTICS_TIMEOUT.total_seconds())
        except (OSError, TimeoutError, driver.PostgresError, driver.InterfaceError, InvalidSettings) as exc:
            log.info("could not read the statistics of %s: %s; leaving them out", self.location, exc)
            return None

    def classify(self, outcome: int, sqlstate: str) -> ErrorClass | None:
        return classify(outcome, sqlstate)

    def engine(self, load: Load, draw: Draw, settings: EngineSettings) -> Engine:
        return PostgresEngine(self._address, load, draw, settings)


def _tls(address: PostgresAddress) -> ssl.SSLContext | str | bool:
    """Return the ``ssl`` argument for asyncpg: False, "prefer", or an SSL context, with which asyncpg does not look for
    certificates in the home folder."""
    if address.tls == "disable" or address.is_local:
        return False
    return "prefer" if address.tls == "prefer" and address.tls_root is None else tls_context(address)


def signals_of(activity: Sequence[Sequence[Any]]) -> ServerSignals:
    """Count all, active and waiting sessions, from rows of (is active, wait event type, wait event, count)."""
    events: Counter[str] = Counter()
    for _, kind, event, count in activity:
        if kind is not None:
            events[f"{kind}:{event}"] += count
    active = [(kind, count) for is_active, kind, _, count in activity if is_active]
    return ServerSignals(
        at=timedelta(),
        sessions=sum(row[-1] for row in activity),
        active=sum(count for _, count in active),
        waiting=sum(count for kind, count in active if kind in _CONTENTION),
        lock_waits=sum(count for kind, count in active if kind == "Lock"),
        wait_events=events,
    )


def totals_by_kind(kinds: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Sum the rows of pg_stat_statements for each kind of operation; ``kinds`` maps normalized SQL to a kind."""
    found = {f"{kind}.{name}": 0.0 for kind in kinds.values() for name in _STATEMENT_TOTALS}
    for row in rows:
        if (kind := kinds.get(normalized(str(row["query"])))) is not None:
            for name in _STATEMENT_TOTALS:
                found[f"{kind}.{name}"] += float(row[name] or 0)
    return found


def kinds_by_text(statements: Statements) -> dict[str, str]:
    """Map normalized SQL to its kind of operation. Leaves out kinds that share a statement, because the server counts this
    statement for all of them together."""
    owners: dict[str, set[str]] = {}
    for kind, texts in statements.items():
        for sql in texts:
            owners.setdefault(normalized(sql), set()).add(kind)
    unclear = {kind for kinds in owners.values() if len(kinds) > 1 for kind in kinds}
    return {text: kind for text, kinds in owners.items() for kind in kinds - unclear}


def normalized(sql: str) -> str:
    """Replace the constants in a statement by ? as pg_stat_statements does, to find the statement there. Comments are removed,
    because a quote in one would look like the beginning of a text."""
    return " ".join(_CONSTANT.sub("?", without_comments(sql)).split()).rstrip("; ").lower()


def _column(row: "asyncpg.Record") -> Column:
    kind = _TYPES.get(row["type"], ValueType.TEXT)
    return Column(name=row["name"], type=kind, native_type=row["native"], nullable=row["nullable"])


def _driver() -> Any:
    try:
        import asyncpg
    except ImportError as exc:
        raise MissingExtra("a PostgreSQL database under test", "postgres") from exc
    return asyncpg
