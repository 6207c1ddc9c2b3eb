"""What a SQL database must do for the tables: run a named query, or a script of them in one transaction.

A script is a generator: it yields a query's name and values, is sent that query's rows, and returns its result. So the tables'
logic is written once, whether the driver awaits (PostgreSQL) or blocks in a thread (SQLite). To raise is to roll back.
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
    """A row by column name, or by place."""

    def __getitem__(self, column: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulk:
    """Many rows for a query that keeps the new ones, passes over those it has, and answers with how many were ``new``."""

    table: str
    columns: tuple[str, ...]
    records: Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Values for a query that takes something unique: where another was quicker nothing is done, and no row comes back."""

    values: Values


Rows = Sequence[Row]
Step = tuple[str, Values | Bulk | Trial]
Script = Generator[Step, Rows, T]


class RingingQueue(Queue, Protocol):
    """A queue whose waiters others may wake too."""

    async def ring(self, pool_ids: Iterable[PoolId]) -> None: ...


class Database(Protocol):
    """One database, with its driver's errors translated to ours at this edge."""

    @property
    def traits(self) -> StoreTraits: ...

    @property
    def location(self) -> str:
        """Where it is, without secrets."""
        ...

    def queue(self) -> RingingQueue:
        """Its jobs on the move, in the way it does that best."""
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def read(self, query: str, values: Values | None = None) -> Rows:
        """Run a query that changes nothing."""
        ...

    async def write(self, query: str, values: Values) -> Rows:
        """Run one named query in a transaction of its own."""
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
    """Refuse the script unless the lease is still the caller's."""
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
