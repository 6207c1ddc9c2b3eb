"""Snowflake through its connector: a small pool of blocking sessions in threads, one transaction for each script.

A writing transaction first updates the row ``writer`` of the table ``locks``, which locks this row until the transaction ends.
So only one transaction writes at a time, both on hybrid tables (which lock rows) and on standard tables (which lock whole
tables). Only heartbeats and lease renewals do without this lock. If a process is killed, its transaction is aborted by the next
session that waits for the lock; see ``snowflake_transaction``.
"""

import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

from drumbeat.core.errors import InvalidSettings
from drumbeat.store.interface import StoreTraits
from drumbeat.store.sql.database import Bulk, MayConflict, Rows, Script, Values
from drumbeat.store.sql.queries import Query, SqlTable, load_queries, load_table_queries
from drumbeat.store.sql.snowflake_dialect import dialect
from drumbeat.store.sql.snowflake_queue import ProcessNotify, SnowflakeQueue
from drumbeat.store.sql.snowflake_sessions import EXPIRED, LOCKED, MISSING, SessionExpired, SnowflakeSessions, driver, roll_back
from drumbeat.store.sql.snowflake_sign_in import SnowflakeSignIn
from drumbeat.store.sql.snowflake_statements import plain, run_query
from drumbeat.store.sql.snowflake_transaction import SnowflakeTransaction, abort_abandoned, transaction_name

T = TypeVar("T")

_STREAMED_ROWS = 500
_LONGEST_PAUSE = 0.5  #: seconds before a lock is asked for again
_TABLES = ("hybrid", "standard")
_SHORTEST_BEAT = timedelta(seconds=5)
_LIMITS = (
    "Writes run one after the other: a transaction takes some hundred milliseconds, so a store makes a few of them a second.",
    "Heartbeats and beats of controllers come every 5 s or less often; one heartbeat carries what was measured since the last.",
    "A waiting worker learns of a job that another process pushed within 5 s: Snowflake has no notifications.",
    "A copy of a store in use does not show one moment: each table is read at its own time.",
    "Tables are created outside any transaction; an interrupted migration is completed by running it again.",
    "If a process is killed within a transaction, others cannot write for up to 40 s; then another process of the same user "
    "aborts it. Processes of other users wait until Snowflake aborts it, after 5 minutes.",
    "Every open store keeps its warehouse awake, which costs credits as long as a worker or controller runs.",
)
_STANDARD_LIMITS = (
    "Standard tables enforce no primary key and no unique name: the transaction checks both while it holds the writer's lock.",
    "Standard tables lock whole tables, so a heartbeat may wait for a write to the same table.",
)
_WITHOUT_LOCK = frozenset({"worker_beat", "renew_lease"})  #: each changes one row that only its caller changes in this way


class SnowflakeDatabase:
    """A schema of a Snowflake account with Drumbeat's tables."""

    def __init__(
        self,
        sign_in: SnowflakeSignIn,
        *,
        tables: str = "hybrid",
        connections: int = 4,
        command_timeout: timedelta = timedelta(seconds=60),
        connect_timeout: timedelta = timedelta(seconds=60),
    ) -> None:
        if tables not in _TABLES:
            raise InvalidSettings(f"the store's URL: expected tables={' or tables='.join(_TABLES)}, got tables={tables}")
        sign_in.check()
        driver()
        self._dialect = dialect(hybrid=tables == "hybrid")
        self._queries = load_queries(self._dialect)
        self._open: Callable[[], SnowflakeSessions] = lambda: SnowflakeSessions(
            sign_in, connections, command_timeout, connect_timeout, hybrid=tables == "hybrid"
        )
        self.sessions = self._open()
        self._patience = command_timeout
        self._transaction_name = transaction_name(self.sessions.location)
        self.notifier = ProcessNotify()
        self.traits = StoreTraits(
            name="snowflake",
            shared=True,
            networked=True,
            shortest_beat=_SHORTEST_BEAT,
            limits=(*_LIMITS, *(() if tables == "hybrid" else _STANDARD_LIMITS)),
        )

    @property
    def location(self) -> str:
        return self.sessions.location

    async def open(self) -> None:
        await self.sessions.run(lambda session: None)

    async def close(self) -> None:
        await self.sessions.close()
        self.sessions = self._open()

    def queue(self) -> SnowflakeQueue:
        return SnowflakeQueue(self, self.notifier)

    async def read(self, query: str, values: Values | None = None) -> Rows:
        found = self._queries[query]
        return await self.sessions.run(lambda session: run_query(session.cursor(), found, values or {}))

    async def write(self, query: str, values: Values) -> Rows:
        if query in _WITHOUT_LOCK:
            return await self.sessions.run(lambda session: self._write_without_lock(session, query, values), writing=True)
        return await self.transact(_only(query, values))

    async def transact(self, script: Script[T]) -> T:
        return await self.sessions.run(lambda session: self._transact(session, script), writing=True)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator["_SnowflakeReads"]:
        """Yield an object that runs queries; each query sees the store at one moment, but not all of them at the same moment,
        since even a transaction in Snowflake sees what others commit meanwhile."""
        yield _SnowflakeReads(self.sessions, self._queries)

    def add_table_queries(self, tables: Iterable[SqlTable]) -> None:
        for table in tables:
            self._queries = {**self._queries, **load_table_queries(self._dialect, table)}

    async def describe(self) -> str:
        rows = await self.sessions.run(lambda session: session.cursor().execute("SELECT CURRENT_VERSION()").fetchall())
        return f"Snowflake {rows[0][0]}"

    async def examine(self) -> Sequence[str]:
        return []

    def _transact(self, session: Any, script: Script[T]) -> T:
        """Run a script in one transaction, in this thread. After an error, ``SnowflakeSessions`` rolls the transaction back."""
        transaction = self._until_unlocked(session, self._lock)
        transaction.lock = self._lock
        try:
            result = self._drive(transaction, script)
        except driver().Error as exc:
            if exc.errno in LOCKED:
                self._abort_abandoned(session)
            raise
        transaction.commit()
        return result

    def _write_without_lock(self, session: Any, query: str, values: Values) -> Rows:
        rows: Rows = ()

        def run(transaction: SnowflakeTransaction) -> None:
            nonlocal rows
            rows = run_query(transaction, self._queries[query], values)

        self._until_unlocked(session, run).commit()
        return rows

    def _until_unlocked(self, session: Any, first: Callable[[SnowflakeTransaction], None]) -> SnowflakeTransaction:
        """Begin a transaction and run its first statements. Tries again while another transaction holds a lock they need.
        Raises SessionExpired if the session cannot begin a transaction any more."""
        deadline = time.monotonic() + self._patience.total_seconds()
        while True:
            transaction = SnowflakeTransaction(session, self._transaction_name)
            try:
                transaction.begin()
            except driver().Error as exc:
                if exc.errno in EXPIRED:
                    raise SessionExpired(exc) from exc
                raise
            try:
                first(transaction)
                return transaction
            except driver().Error as exc:
                if exc.errno not in LOCKED or time.monotonic() > deadline:
                    raise
            self._abort_abandoned(session)
            _pause()

    def _abort_abandoned(self, session: Any) -> None:
        roll_back(session)
        abort_abandoned(session, self._transaction_name)
        roll_back(session)  # the queries have begun a transaction

    def _lock(self, cursor: Any) -> None:
        """Lock the writer's row until the transaction ends. Before the tables are created there is nothing to lock."""
        try:
            run_query(cursor, self._queries["lock_writer"], {})
        except driver().ProgrammingError as exc:
            if exc.errno != MISSING:
                raise

    def _drive(self, cursor: Any, script: Script[T]) -> T:
        """Run each query of a script, and return the script's result."""
        try:
            name, values = next(script)
            while True:
                name, values = script.send(run_query(cursor, self._queries[name], values))
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            script.close()


class _SnowflakeReads:
    """Runs queries for ``SnowflakeDatabase.snapshot``. Each query sees the store at its own moment."""

    def __init__(self, sessions: SnowflakeSessions, queries: Mapping[str, Query]) -> None:
        self._sessions = sessions
        self._queries = queries

    async def read(self, query: str, values: Values | None = None) -> Rows:
        found = self._queries[query]
        return await self._sessions.run(lambda session: run_query(session.cursor(), found, values or {}))

    async def stream(self, query: str) -> AsyncGenerator[Sequence[tuple[Any, ...]], None]:
        [statement] = self._queries[query].statements
        cursor = await self._sessions.run(lambda session: session.cursor().execute(statement.text))
        while rows := await self._sessions.run(lambda _: cursor.fetchmany(_STREAMED_ROWS)):
            yield [plain(row) for row in rows]


def _pause() -> None:
    """Wait before a lock is asked for again: if many sessions wait for it already, Snowflake refuses another one at once."""
    time.sleep(random.uniform(_LONGEST_PAUSE / 2, _LONGEST_PAUSE))  # noqa: S311 - nothing is secret


def _only(query: str, values: Values | Bulk | MayConflict) -> Script[Rows]:
    return (yield query, values)
