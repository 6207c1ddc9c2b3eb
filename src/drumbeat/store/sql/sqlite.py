"""SQLite: one file that many processes share. The standard driver runs in two threads: one writes, one reads.

The writing thread runs all waiting operations in one transaction and commits once (group commit). Each operation has its own
savepoint, so that its failure does not affect the others. SQLite's file lock keeps processes from writing at the same time.
"""

import asyncio
import logging
import os
import sqlite3
import stat
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from drumbeat.core.errors import (
    DrumbeatError,
    InvalidInput,
    InvalidSettings,
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreUnavailable,
)
from drumbeat.store.interface import StoreTraits
from drumbeat.store.sql.database import Bulk, MayConflict, Rows, Script, Values, run_script_blocking
from drumbeat.store.sql.queries import Dialect, Query, SqlTable, jobs_of_pool, load_queries, load_table_queries
from drumbeat.store.sql.sqlite_notify import SqliteNotify
from drumbeat.store.sql.sqlite_queue import SqliteQueue
from drumbeat.store.sql.sqlite_thread import BrokenConnection, CallOutcome, DatabaseThread, QueuedCall

T = TypeVar("T")

log = logging.getLogger(__name__)

_READ_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH


def _make_private(path: Path) -> None:
    """Create an empty database file that only the current user can read. Raises FileExistsError if the file exists.

    Creates the file under a temporary name and links it to ``path``. If it were created at ``path``, closing it would release
    all locks of this process on it, also a lock that SQLite just took in another thread: two processes could write at once.
    So on a file system without hard links, where it is created at ``path``, this process never closes it.
    """
    empty = path.with_name(f".{path.name}.{uuid4().hex}")
    os.close(_create(empty))
    try:
        os.link(empty, path)
    except FileExistsError:
        raise
    except OSError:
        _create(path)
    finally:
        empty.unlink()


def _create(path: Path) -> int:
    """Create a private file and return its descriptor, which stays open until it is closed by number."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _paths(pairs: Sequence[str]) -> str:
    """Return the arguments of SQLite's ``json_insert`` for alternating keys and values; each key becomes a JSON path."""
    return ", ".join(f"'$.' || {part}" if n % 2 == 0 else part for n, part in enumerate(pairs))


def _path(keys: Sequence[str]) -> str:
    """Return the SQL expression that builds a JSON path from nested keys, the outermost first."""
    return "'$'" + "".join(f" || '.' || {key}" for key in keys)


DIALECT = Dialect(
    name="sqlite",
    schema="",
    numbered=False,
    words={
        "now": "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000",
        "json": "TEXT",
        "bytes": "BLOB",
        "real": "REAL",
        "hot": "WITHOUT ROWID",
        "clustered": "WITHOUT ROWID",
        "document": "TEXT",
        "numbered": "INTEGER PRIMARY KEY",
        "queue": "",
        "empty": "DELETE FROM",
        "for_share": "",
        "for_update": "",
        "for_change": "",
    },
    calls={
        "texts": lambda given: f"json_each({given})",
        "time": lambda us: f"strftime('%Y-%m-%d %H:%M:%f', ({us}) / 1000000.0, 'unixepoch')",
        "json_object": lambda *parts: f"json_object({', '.join(parts)})",
        "json_filled": lambda document, *pairs: f"json_insert({document}, {_paths(pairs)})",
        "json_part": lambda document, key: f"json_extract({document}, '$.' || {key})",
        "json_number": lambda document, key: f"json_extract({document}, '$.' || {key})",
        "json_text": lambda document, *keys: f"json_extract({document}, {_path(keys)})",
        "job_id": lambda given, number: f"COALESCE({given}, printf('j%012d', {number}))",
        "json_collect": lambda key, value: f"json_group_object({key}, json({value}))",
        "listed": lambda column, numbers: f"{column} IN (SELECT value FROM json_each({numbers}))",  # noqa: S608 - of our own texts
        "among": lambda column, names: f"{column} IN (SELECT value FROM json_each({names}))",  # noqa: S608 - of our own texts
        "of_pool": lambda column, condition="TRUE": f"{column} IN (SELECT j.seq FROM ({jobs_of_pool()}) j WHERE {condition})",  # noqa: S608 - of our own texts
        "by": lambda index: f"INDEXED BY {index}",
        "worker_number": lambda name: (
            f"CASE WHEN rtrim({name}, '0123456789') LIKE '%worker-' "
            f"AND length({name}) - length(rtrim({name}, '0123456789')) BETWEEN 1 AND 15 "
            f"THEN CAST(substr({name}, length(rtrim({name}, '0123456789')) + 1) AS INTEGER) END"
        ),
    },
)

_STREAMED_ROWS = 500
_OLDEST_SQLITE = (3, 35, 0)
_SYNCHRONOUS = ("FULL", "NORMAL")


class SqliteDatabase:
    """A SQLite database in one file."""

    traits = StoreTraits(name="sqlite", shared=True, networked=False)

    def __init__(
        self, path: Path, *, synchronous: str = "FULL", busy_timeout: timedelta = timedelta(seconds=10), create: bool = False
    ) -> None:
        if synchronous not in _SYNCHRONOUS:
            raise InvalidSettings(f"expected synchronous to be one of {', '.join(_SYNCHRONOUS)}, got {synchronous!r}")
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise InvalidSettings(f"expected SQLite 3.35 or newer, Python has {sqlite3.sqlite_version}; use a newer Python")
        self._path = path
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout
        self._create = create
        self._has_warned = False
        self._opened: tuple[int, int] | None = None  #: device and number (inode) of the file that is open
        self._queries = load_queries(DIALECT)
        self._writer = DatabaseThread("writer", self._connect, self._write_batch)
        self._reader = DatabaseThread("reader", self._connect, self._read_batch)
        self.notifier = SqliteNotify(path)

    @property
    def location(self) -> str:
        return f"sqlite:///{self._path}"

    async def open(self) -> None:
        await self._writer.open()
        try:
            await self._reader.open()
        except BaseException:
            await self._writer.close()
            raise

    async def close(self) -> None:
        self.notifier.close()
        await asyncio.gather(self._writer.close(), self._reader.close())

    def queue(self) -> SqliteQueue:
        return SqliteQueue(self, self.notifier)

    async def read(self, query: str, values: Values | None = None) -> Rows:
        found = self._queries[query]
        rows: Rows = await self._reader.submit(lambda connection: _run(connection, found, values or {}))
        return rows

    async def write(self, query: str, values: Values) -> Rows:
        found = self._queries[query]
        rows: Rows = await self._writer.submit(lambda connection: _run(connection, found, values))
        return rows

    async def transact(self, script: Script[T]) -> T:
        result: T = await self._writer.submit(lambda connection: self._drive(connection, script))
        return result

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator["_SqliteSnapshot"]:
        reader = DatabaseThread("snapshot", self._connect, self._read_batch)
        await reader.open()
        try:
            await reader.submit(_begin_reading)
            yield _SqliteSnapshot(reader, self._queries)
        finally:
            await reader.close()

    def add_table_queries(self, tables: Iterable[SqlTable]) -> None:
        for table in tables:
            self._queries = {**self._queries, **load_table_queries(DIALECT, table)}

    async def describe(self) -> str:
        return f"SQLite {sqlite3.sqlite_version}, synchronous {self._synchronous}"

    async def examine(self) -> Sequence[str]:
        rows = await self._reader.submit(lambda connection: connection.execute("PRAGMA quick_check").fetchall())
        return [] if [row[0] for row in rows] == ["ok"] else [f"integrity: {row[0]}" for row in rows]

    def _connect(self) -> sqlite3.Connection:
        self._check_path()
        self._keep_private()
        try:
            connection = self._configured(
                sqlite3.connect(self._path, isolation_level=None, timeout=self._busy_timeout.total_seconds())
            )
        except sqlite3.Error as exc:
            raise self._translated(exc) from exc
        self._opened = self._opened or self._file()
        return connection

    def _file(self) -> tuple[int, int] | None:
        """Return the device and the number (inode) of the file at the path; None if there is no file."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _check_file(self) -> None:
        """Raise StoreUnavailable if the open file is no longer the one at the path: SQLite would go on to use a deleted file,
        which no other process sees."""
        if self._file() != self._opened:
            raise StoreUnavailable(
                f"the SQLite file {self._path} was deleted or replaced while it was open; put the file back, or start this "
                "process again to use the new one"
            )

    def _check_path(self) -> None:
        if self._path.is_dir():
            raise InvalidSettings(f"expected a SQLite file at {self._path}, got a folder; name a file in it")
        if self._create and not self._path.parent.is_dir():
            raise InvalidSettings(f"there is no folder {self._path.parent} for the SQLite file; create the folder first")
        if not self._create and not self._path.exists():
            raise StoreUnavailable(f"there is no store at {self._path}; run: drumbeat store init", is_missing=True)

    def _keep_private(self) -> None:
        """Create a missing database file so that only this user can read it; warn if others can read an existing one."""
        with suppress(OSError):
            if self._create and not self._path.exists():
                _make_private(self._path)
            if stat.S_IMODE(self._path.stat().st_mode) & _READ_BY_OTHERS and not self._has_warned:
                self._has_warned = True
                log.warning("other users of this machine can read the store; to prevent that, run: chmod 600 %s", self._path)

    def _configured(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        connection.row_factory = sqlite3.Row
        if self._create:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has no effect on a file that has tables
        if self._create or connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_version'").fetchone():
            self._use_wal(connection)
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute("PRAGMA cache_size = -16000")
        return connection

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        """Switch the file to write-ahead logging (WAL). SQLite's busy timeout does not apply here, so the switch is retried."""
        deadline = time.monotonic() + self._busy_timeout.total_seconds()
        while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def _drive(self, connection: sqlite3.Connection, script: Script[T]) -> T:
        """Run each query of a script in this thread, and return the script's result."""
        return run_script_blocking(script, lambda name, values: _run(connection, self._queries[name], values))

    def _read_batch(self, connection: sqlite3.Connection, calls: Sequence[QueuedCall]) -> list[CallOutcome]:
        try:
            self._check_file()
        except StoreUnavailable as exc:
            return [CallOutcome(call, error=exc) for call in calls]
        return [self._attempt(connection, call) for call in calls]

    def _write_batch(self, connection: sqlite3.Connection, calls: Sequence[QueuedCall]) -> list[CallOutcome]:
        try:
            connection.execute("BEGIN IMMEDIATE")
            self._check_file()
            outcomes = self._attempt_all(connection, calls)
        except (sqlite3.Error, StoreUnavailable) as exc:
            error = exc if isinstance(exc, StoreUnavailable) else _caused(self._translated(exc), exc)
            outcomes = [CallOutcome(call, error=error) for call in calls]
        if connection.in_transaction:
            self._roll_back(connection, outcomes)
        return outcomes

    def _attempt_all(self, connection: sqlite3.Connection, calls: Sequence[QueuedCall]) -> list[CallOutcome]:
        """Run calls in the open transaction and commit it; after the error of a single call, it stays open."""
        if len(calls) == 1:
            outcome = self._attempt(connection, calls[0])
            if outcome.error is None:
                connection.execute("COMMIT")
            return [outcome]
        outcomes = [self._attempt_in_savepoint(connection, call) for call in calls]
        connection.execute("COMMIT")
        return outcomes

    def _roll_back(self, connection: sqlite3.Connection, outcomes: list[CallOutcome]) -> None:
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error as exc:
            log.warning("failed to roll back in SQLite at %s: %s; opening a new connection", self._path, exc)
            raise BrokenConnection(outcomes) from exc

    def _attempt_in_savepoint(self, connection: sqlite3.Connection, call: QueuedCall) -> CallOutcome:
        connection.execute("SAVEPOINT call")
        outcome = self._attempt(connection, call)
        if outcome.error is not None and connection.in_transaction:
            connection.execute("ROLLBACK TO call")
        connection.execute("RELEASE call")
        return outcome

    def _attempt(self, connection: sqlite3.Connection, call: QueuedCall) -> CallOutcome:
        try:
            return CallOutcome(call, result=call.work(connection))
        except sqlite3.Error as exc:
            return CallOutcome(call, error=_caused(self._translated(exc), exc))
        except (OverflowError, UnicodeEncodeError) as exc:
            return CallOutcome(call, error=_caused(InvalidInput(f"SQLite cannot store this value: {exc}"), exc))
        except Exception as exc:
            return CallOutcome(call, error=exc)

    def _translated(self, exc: sqlite3.Error) -> StoreError:
        message = str(exc)
        if "locked" in message or "busy" in message:
            return StoreLocked(
                f"SQLite at {self._path} was locked by another connection for over {self._busy_timeout.total_seconds():g} s; "
                "try again; if it was a transaction of your own, push in it with push_on, or after it"
            )
        if "not a database" in message or "malformed" in message:
            return StoreCorrupt(f"expected a SQLite database at {self._path}, got a damaged or different file ({message})")
        if "disk is full" in message:
            return StoreUnavailable(f"the disk is full: SQLite cannot write to {self._path}; free some disk space")
        return StoreUnavailable(f"SQLite at {self._path}: {message}")


class _SqliteSnapshot:
    """One read transaction, in a thread of its own."""

    def __init__(self, reader: DatabaseThread, queries: Mapping[str, Query]) -> None:
        self._reader = reader
        self._queries = queries

    async def read(self, query: str, values: Values | None = None) -> Rows:
        found = self._queries[query]
        rows: Rows = await self._reader.submit(lambda connection: _run(connection, found, values or {}))
        return rows

    async def stream(self, query: str) -> AsyncGenerator[Sequence[tuple[Any, ...]], None]:
        [statement] = self._queries[query].statements
        cursor = await self._reader.submit(lambda connection: _plain_cursor(connection, statement.text))
        try:
            while rows := await self._reader.submit(lambda _: cursor.fetchmany(_STREAMED_ROWS)):
                yield rows
        finally:
            await self._reader.submit(lambda _: cursor.close())


def _begin_reading(connection: sqlite3.Connection) -> None:
    """Begin a read transaction. SQLite takes its snapshot at the first read."""
    connection.execute("BEGIN")
    connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()


def _plain_cursor(connection: sqlite3.Connection, statement: str) -> sqlite3.Cursor:
    """Run a statement. The rows of the returned cursor are tuples."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor.execute(statement)


def _caused(error: DrumbeatError, cause: BaseException) -> DrumbeatError:
    error.__cause__ = cause
    return error


def _run(connection: sqlite3.Connection, query: Query, values: Values | Bulk | MayConflict) -> Rows:
    if isinstance(values, Bulk):
        (statement,) = query.statements
        return [{"new": connection.executemany(statement.in_order(values.columns), values.records).rowcount}]
    rows: Rows = ()
    known = values.values if isinstance(values, MayConflict) else values  # with one writer at a time nothing conflicts
    for statement in query.statements:
        rows = connection.execute(statement.text, known).fetchall()
    return rows
