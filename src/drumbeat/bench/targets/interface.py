"""The interface of every target. Only ``bench prepare`` changes the database, by ``define`` and ``load_rows``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, Protocol, Self

from drumbeat.bench.driver.interface import Engine, EngineSettings
from drumbeat.bench.model import ErrorClass, Load, ServerSignals, ValueType
from drumbeat.bench.values.draw import Draw

Statements = Mapping[str, Sequence[str]]  #: the SQL texts of each kind of operation
NO_STATEMENTS: Statements = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTraits:
    """The properties in which targets differ."""

    name: str  #: postgresql, mysql, sqlite, duckdb
    networked: bool
    transactions: bool = True
    processes: bool = True  #: whether several processes may use it at once; if not, a run has one worker
    signals: bool = False  #: whether ``signals`` and ``counters`` return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column, described in the same way for all targets."""

    name: str
    type: ValueType
    native_type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """What is needed of a table to generate statements for it."""

    name: str
    columns: tuple[Column, ...]
    key: str | None = None  #: the primary key, if it is a single column
    key_low: int | None = None
    key_high: int | None = None
    time_column: str | None = None
    rows: int | None = None  #: an estimate


class Target(Protocol):
    """One database under test. An async context manager, with its own connection besides those of the load."""

    @property
    def traits(self) -> TargetTraits: ...

    @property
    def location(self) -> str:
        """The database's address, without secrets."""
        ...

    async def check(self, load: Load) -> None:
        """Prepare every statement without running it. Raises InvalidInput that names an invalid operation."""
        ...

    async def describe(self, table: str) -> TableDescription:
        """Describe a table. Raises InvalidInput if it does not exist."""
        ...

    async def define(self, statements: Sequence[str]) -> None:
        """Run DDL written with portable SQL types (see bench/workloads/standard)."""
        ...

    async def load_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        """Insert rows in bulk by the fastest method; all of them or none. Returns how many."""
        ...

    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        """The rows of a query with $1, $2 … placeholders."""
        ...

    async def signals(self) -> ServerSignals | None:
        """The server's sessions and waits now; None if the server does not report them or cannot be reached."""
        ...

    async def counters(self, statements: Statements = NO_STATEMENTS) -> Mapping[str, float]:
        """The server's running totals, to compare with later ones; empty if it has none or cannot be reached.

        ``statements``: the SQL of each kind of operation; if the server counts by statement, the result also has the totals
        of each kind as ``KIND.total``.
        """
        ...

    def classify(self, outcome: int, sqlstate: str) -> ErrorClass | None:
        """The error class of a recorded operation; None if it succeeded."""
        ...

    def engine(self, load: Load, draw: Draw, settings: EngineSettings) -> Engine:
        """The fastest engine for this target."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
