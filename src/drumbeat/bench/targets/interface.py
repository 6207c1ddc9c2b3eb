"""What every target promises. Only ``define`` and ``load_rows`` ever change it, and only ``bench prepare`` calls them."""

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
    """How targets differ, declared."""

    name: str  #: postgresql, mysql, sqlite, duckdb
    networked: bool
    transactions: bool = True
    processes: bool = True  #: whether several processes may drive it at once; if not, a run has one worker
    signals: bool = False  #: whether ``signals`` and ``counters`` say anything


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column, in words all targets share."""

    name: str
    type: ValueType
    native_type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """Enough of a table to make statements for it."""

    name: str
    columns: tuple[Column, ...]
    key: str | None = None  #: its primary key, if that is one column
    key_low: int | None = None
    key_high: int | None = None
    time_column: str | None = None
    rows: int | None = None  #: an estimate


class Target(Protocol):
    """One database under test. An async context manager; its own connection is apart from the load's."""

    @property
    def traits(self) -> TargetTraits: ...

    @property
    def location(self) -> str:
        """Where it is, without secrets."""
        ...

    async def check(self, load: Load) -> None:
        """Prepare every statement without running it. Raises InvalidInput naming the operation that is wrong."""
        ...

    async def describe(self, table: str) -> TableDescription:
        """Raises InvalidInput when there is no such table."""
        ...

    async def define(self, statements: Sequence[str]) -> None:
        """Run DDL, written in the portable words of bench/standard (see ``portable types`` there)."""
        ...

    async def load_rows(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
        """Add rows in bulk, the quickest way there is; all of them, or none. Answers with how many."""
        ...

    async def fetch(self, sql: str, values: Sequence[Any] = ()) -> Sequence[Sequence[Any]]:
        """The rows of a query with $1, $2 … placeholders."""
        ...

    async def signals(self) -> ServerSignals | None:
        """What the server says of its sessions now; None where it says nothing, or is not there at the moment."""
        ...

    async def counters(self, statements: Statements = NO_STATEMENTS) -> Mapping[str, float]:
        """The server's running totals, to be subtracted from later ones; empty where it has none, or is not there.

        ``statements``: the SQL of each kind of operation; where the server counts by statement, ``KIND.total`` of each kind
        is among the totals.
        """
        ...

    def classify(self, outcome: int, sqlstate: str) -> ErrorClass | None:
        """What went wrong with a recorded operation; None when nothing did."""
        ...

    def engine(self, load: Load, draw: Draw, settings: EngineSettings) -> Engine:
        """What drives this target hardest."""
        ...

    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
