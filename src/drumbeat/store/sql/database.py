"""The interface of a SQL database: it runs a named query, or a script of named queries in one transaction.

A script is a generator: it yields a query's name and values, is sent that query's rows, and returns its result. So the logic
of the tables is written once, for drivers that await (PostgreSQL) and that block a thread (SQLite). An exception rolls back.
"""

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from drumbeat.core.errors import Fenced
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.store.interface import Queue, StoreTraits

T = TypeVar("T")
Values = Mapping[str, Any]


class Row(Protocol):
    """A row, indexed by column name or position."""

    def __getitem__(self, column: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulk:
    """Many rows for a query that inserts the new ones, skips those that exist, and returns how many were ``new``."""

    table: str
    columns: tuple[str, ...]
    records: Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Values for a query that may violate a unique index: then it changes nothing and returns no row."""

    values: Values


Rows = Sequence[Row]
Step = tuple[str, Values | Bulk | Trial]
Script = Generator[Step, Rows, T]


class RingingQueue(Queue, Protocol):
    """A queue whose waiting workers can be woken from outside."""

    async def notify(self, pool_ids: Iterable[PoolId]) -> None: ...


class Database(Protocol):
    """One database. It translates its driver's errors to Drumbeat's."""

    @property
    def traits(self) -> StoreTraits: ...

    @property
    def location(self) -> str:
        """Where it is, without secrets."""
        ...

    def queue(self) -> RingingQueue:
        """The job queue, as implemented for this database."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def read(self, query: str, values: Values | None = None) -> Rows:
        """Run a query that changes nothing."""
        ...

    async def write(self, query: str, values: Values) -> Rows:
        """Run one named query in its own transaction."""
        ...

    async def transact(self, script: Script[T]) -> T:
        """Run a script in one transaction."""
        ...

    async def describe(self) -> str:
        """The server's name and version."""
        ...

    async def examine(self) -> Sequence[str]:
        """Problems found by the database's own checks."""
        ...


def check_fence(fence: Fence | None) -> Script[None]:
    """Raise Fenced if the fence's lease was released or taken since."""
    if fence is None:
        return
    if not (yield "check_fence", {"name": fence.name, "epoch": fence.epoch}):
        raise Fenced(f"the lease on {fence.name} was taken over since epoch {fence.epoch}; this controller must stop acting")


async def driven(script: Script[T], perform: Callable[[str, Values | Bulk | Trial], Awaitable[Rows]]) -> T:
    """Run a script to its end, awaiting each query."""
    try:
        name, values = next(script)
        while True:
            name, values = script.send(await perform(name, values))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        script.close()
