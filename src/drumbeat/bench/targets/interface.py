"""The interface of every database under test. Only ``define``, ``load_rows`` and ``set_warehouse`` change the database."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType, TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from drumbeat.bench.driver.interface import Engine, EngineSettings
from drumbeat.bench.model import ErrorClass, Load, ServerSignals, ValueType
from drumbeat.bench.model.warehouse import WarehouseSettings
from drumbeat.bench.values.draw import Draw

Statements = Mapping[str, Sequence[str]]  #: maps each kind of operation to the SQL of its statements
NO_STATEMENTS: Statements = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTraits:
    """Properties in which the database products differ, such as whether only one process can use the database."""

    name: str  #: postgresql, mysql, sqlite, duckdb or snowflake
    networked: bool
    transactions: bool = True
    processes: bool = True  #: whether several processes can open the database at once; if not, a run has one worker
    signals: bool = False  #: whether the server reports statistics, by ``signals`` and ``counters``
    sessions: bool = True  #: whether ``signals`` counts open sessions
    totals: bool = True  #: whether ``counters`` returns running totals
    read_every: timedelta = timedelta(seconds=1)  #: how often statistics are read during a load


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A table column with its type, both as this package's ValueType and as the database names it."""

    name: str
    type: ValueType
    native_type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """A table's columns, key, key range and size: what is needed to generate statements for the table."""

    name: str
    columns: tuple[Column, ...]
    key: str | None = None  #: the primary key, if it is a single column
    key_low: int | None = None
    key_high: int | None = None
    rows: int | None = None  #: estimated number of rows
    read_only: str | None = None  #: why the table cannot be changed, as text that follows its name; None if it can

    @property
    def time_column(self) -> str | None:
        """The name of the first column with timestamps; None if there is none."""
        return next((column.name for column in self.columns if column.type is ValueType.TIMESTAMP), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStatements:
    """What a server has recorded so far about a run's statements: their number, and totals by name. Totals of one kind of
    operation are named ``KIND.NAME``."""

    statements: int
    totals: Mapping[str, float]
    note: str | None = None  #: what is missing, and why


@runtime_checkable
class KeepsHistory(Protocol):
    """A target whose server records every statement with a tag that names the run. Statements may be recorded with a delay."""

    async def recorded_statements(self, run: str, since: datetime, until: datetime, expected: int) -> RecordedStatements:
        """Return what the server has recorded about a run's statements that ended in this time. Raises InvalidInput.

        ``expected``: approximate number of statements that the run sent; the way of reading the records depends on it."""
        ...

    async def credits_used(self, since: datetime, until: datetime) -> Mapping[str, float]:
        """Return the credits that the warehouse used in this time, by name. Raises InvalidInput.

        ``estimated``: calculated from the warehouse's size. ``metered``: the credits of all hours that overlap this time, also
        those that others have used; ``metered_hours``: how many hours these are. Both are missing until every hour has been
        metered by the server."""
        ...


@runtime_checkable
class HasWarehouse(Protocol):
    """A target that runs statements on a warehouse (a group of servers) that can be resized, scaled and resumed."""

    async def set_warehouse(self, wanted: WarehouseSettings) -> Sequence[str]:
        """Apply a template's settings to the warehouse; its other settings do not change. Returns the SQL that ran. Raises
        InvalidInput."""
        ...


class Target(Protocol):
    """One database under test. Use it with ``async with``; it has one connection of its own, besides the load's connections."""

    @property
    def traits(self) -> TargetTraits: ...

    @property
    def location(self) -> str:
        """The database's URL without user and password, for messages."""
        ...

    async def check(self, load: Load) -> None:
        """Prepare every statement of a load, without running any. Raises InvalidInput, which names the invalid operation."""
        ...

    async def describe(self, table: str) -> TableDescription:
        """Return a table's columns, key and size. Raises InvalidInput if the table does not exist."""
        ...

    async def define(self, statements: Sequence[str]) -> None:
        """Run DDL written with portable SQL types (see bench/workloads/standard)."""
        ...

    async def load_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        """Insert all rows in bulk, or none on an error. Returns the number of rows inserted."""
        ...

    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        """Run a query with $1, $2 … placeholders and return its rows."""
        ...

    async def signals(self) -> ServerSignals | None:
        """Return how many sessions are open and waiting now; None if the server does not say or cannot be reached."""
        ...

    async def counters(self, statements: Statements = NO_STATEMENTS) -> Mapping[str, float]:
        """Return the server's running totals, by name; empty if it has none or cannot be reached.

        Subtract two results to see what happened in between. ``statements`` is the SQL of each kind of operation: a server
        that counts by statement also returns totals for each kind, as ``KIND.NAME``.
        """
        ...

    def classify(self, outcome: int, sqlstate: str) -> ErrorClass | None:
        """Return the error class of a recorded operation; None if the operation succeeded."""
        ...

    def engine(self, load: Load, draw: Draw, settings: EngineSettings) -> Engine:
        """Return the fastest engine (see ``Engine``) that can run a load on this database."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
