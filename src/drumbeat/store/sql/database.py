"""The interface of a SQL database: it runs a named query, or a script of named queries in one transaction.

A script is a generator. It yields the name and values of a query, receives the rows, and returns a result at the end. So the
logic is written once for asynchronous drivers (PostgreSQL) and blocking ones (SQLite). If a script raises, it is rolled back.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from drumbeat.core.errors import Fenced, StoreUnavailable
from drumbeat.core.job import JobId, Token
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.store.interface import Queue, StoreTraits
from drumbeat.store.sql.queries import SqlTable

_PAUSES = (0.01, 0.05, 0.2, 0.5)  #: longest pauses, in seconds, before a transaction is tried again after a deadlock

T = TypeVar("T")
Values = Mapping[str, Any]


class Row(Protocol):
    """One row of a query's result. A column is read by its name or position."""

    def __getitem__(self, column: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulk:
    """Rows to insert in bulk. The query skips rows that exist already and returns the number of inserted rows as ``new``."""

    table: str
    columns: tuple[str, ...]
    records: Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MayConflict:
    """Values for a query that might violate a unique index; if so, the query changes nothing and returns no row."""

    values: Values


class Deadlock(StoreUnavailable):
    """Two transactions waited for each other, and the database rolled this one back. It can be tried again."""


class TransactionTooLong(StoreUnavailable):
    """A transaction took longer than the database allows, and was rolled back. One with fewer rows may succeed."""


Rows = Sequence[Row]
Step = tuple[str, Values | Bulk | MayConflict]
Script = Generator[Step, Rows, T]


class NotifyingQueue(Queue, Protocol):
    """A job queue that can also wake workers, and that knows the row numbers of the jobs that it has claimed."""

    async def notify(self, pool_ids: Iterable[PoolId]) -> None:
        """Wake the workers that wait for jobs of these pools."""
        ...

    async def numbers(self, tokens: Iterable[Token]) -> Mapping[JobId, int]:
        """Return the row number of each token's job, by job id. Leaves out jobs that are not found."""
        ...


class Snapshot(Protocol):
    """One read-only transaction: every query sees the database as it was when the transaction began (not in Snowflake)."""

    async def read(self, query: str, values: Values | None = None) -> Rows:
        """Run one named query."""
        ...

    def stream(self, query: str) -> AsyncGenerator[Sequence[tuple[Any, ...]], None]:
        """Yield the rows of a named query, some hundred at a time."""
        ...


class Database(Protocol):
    """A SQL database that runs named queries and scripts. Errors of its driver are translated to Drumbeat's errors."""

    @property
    def traits(self) -> StoreTraits: ...

    @property
    def location(self) -> str:
        """The address of the database, without secrets."""
        ...

    def queue(self) -> NotifyingQueue:
        """Return the job queue as implemented for this kind of database."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def read(self, query: str, values: Values | None = None) -> Rows:
        """Run one named query that changes nothing."""
        ...

    async def write(self, query: str, values: Values) -> Rows:
        """Run one named query in its own transaction."""
        ...

    async def transact(self, script: Script[T]) -> T:
        """Run a script of named queries in one transaction, and return its result."""
        ...

    def snapshot(self) -> AbstractAsyncContextManager[Snapshot]:
        """Open a read-only transaction, for the time of an ``async with`` block."""
        ...

    def add_table_queries(self, tables: Iterable[SqlTable]) -> None:
        """Add the queries that copy these tables, such as ``copy_rows_jobs``, to the queries that can be run by name."""
        ...

    async def describe(self) -> str:
        """Return the name and version of the database server."""
        ...

    async def examine(self) -> Sequence[str]:
        """Run the database's own integrity checks. Returns one line of text for each problem."""
        ...


def check_fence(fence: Fence | None) -> Script[None]:
    """Raise Fenced if the controller no longer holds the lease of ``fence``: it was released, or another owner took it."""
    if fence is None:
        return
    if not (yield "check_fence", {"name": fence.name, "epoch": fence.epoch}):
        raise Fenced(f"lease {fence.name} (epoch {fence.epoch}) was released or taken over; this controller must stop acting")


async def run_script(script: Script[T], perform: Callable[[str, Values | Bulk | MayConflict], Awaitable[Rows]]) -> T:
    """Run a script to its end: await ``perform`` for each query that it yields. Returns the script's result."""
    try:
        name, values = next(script)
        while True:
            name, values = script.send(await perform(name, values))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        script.close()


async def transact_again(database: Database, make: Callable[[], Script[T]]) -> T:
    """Run a script in one transaction, and run a new one if the database rolled it back because of a deadlock."""
    return await _again(lambda: database.transact(make()))


async def write_again(database: Database, query: str, values: Values) -> Rows:
    """Run a query that changes rows, and run it again if the database rolled it back because of a deadlock."""
    return await _again(lambda: database.write(query, values))


async def _again(work: Callable[[], Awaitable[T]]) -> T:
    """Do the work; try again after a deadlock, a few times. A random pause before each new try lets the other transaction of
    the deadlock lock the rows first."""
    for pause in _PAUSES:
        try:
            return await work()
        except Deadlock:
            await asyncio.sleep(random.uniform(pause / 2, pause))  # noqa: S311 - nothing is secret
    return await work()


def run_script_blocking(script: Script[T], perform: Callable[[str, Values | Bulk | MayConflict], Rows]) -> T:
    """Run a script to its end in this thread: call ``perform`` for each query that it yields. Returns the script's result."""
    try:
        name, values = next(script)
        while True:
            name, values = script.send(perform(name, values))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        script.close()
