"""What a load is made of: operations, their statements and where their values come from. Values only, checked when made."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from drumbeat.core.errors import InvalidInput


class Kind(StrEnum):
    """The operations the seeds name. A custom operation may have any other name."""

    POINT_LOOKUP = "POINT_LOOKUP"
    RANGE_SCAN = "RANGE_SCAN"
    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


_LONGEST_TEXT = 65_536  #: thousands of operations are made ahead, so a longer one would take gigabytes
_MOST_DIGITS = 18
READS = frozenset({Kind.POINT_LOOKUP, Kind.RANGE_SCAN})


class ErrorClass(StrEnum):
    """What went wrong with an operation, told apart the same way on every target."""

    CONNECTION = "CONNECTION"  #: the connection was lost or could not be made
    QUERY_TIMEOUT = "QUERY_TIMEOUT"
    DATABASE_ERROR = "DATABASE_ERROR"  #: the database refused; its SQLSTATE or number says why
    CONFIGURATION = "CONFIGURATION"  #: it can never work as it is asked for
    FATAL = "FATAL"  #: this worker cannot go on


class ValueType(StrEnum):
    """How a value is given to the database."""

    INT = "int"  #: 4 bytes
    BIGINT = "bigint"
    FLOAT = "float"
    TEXT = "text"
    TIMESTAMP = "timestamp"


class Distribution(StrEnum):
    """Which keys are asked for how often."""

    UNIFORM = "uniform"
    ZIPFIAN = "zipfian"  #: few keys take most of the load (scrambled, so that they are not neighbours)
    HOTSPOT = "hotspot"  #: a share of the keys takes a share of the load
    SEQUENTIAL = "sequential"  #: one after the other, each worker its own
    LATEST = "latest"  #: the newest keys most


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key no worker has used: each has a range of its own, by its slot."""

    first: int  #: above every key that is there
    span: int = 1_000_000_000  #: how many keys one slot may use
    table: str = ""  #: where the keys go, so that ``first`` can be put above what is there when a run begins …
    column: str = ""  #: … and into which column
    type: ValueType = ValueType.BIGINT

    def __post_init__(self) -> None:
        if self.span < 1:
            raise InvalidInput(f"expected span to be 1 or more, got {self.span}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    """A key between two bounds, chosen by a distribution."""

    low: int = 1
    high: int = 1
    distribution: Distribution = Distribution.UNIFORM
    theta: float = 0.99  #: zipfian, latest: how skewed
    hot_share: float = 0.2  #: hotspot: this share of the keys …
    hot_load: float = 0.8  #: … takes this share of the load
    inserted: NewKey | None = None  #: latest: the keys this worker inserted by it are newer than ``high``
    type: ValueType = ValueType.BIGINT

    def __post_init__(self) -> None:
        _check_bounds("keys", self.low, self.high)
        _check_fits("low", self.low, self.type)
        _check_fits("high", self.high, self.type)
        if not 0 < self.theta < 1:
            raise InvalidInput(f"expected theta between 0 and 1, got {self.theta}")
        for name in ("hot_share", "hot_load"):
            if not 0 < getattr(self, name) <= 1:
                raise InvalidInput(f"expected {name} above 0 and at most 1, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolValue:
    """A value from a list prepared before the run; workers never use the same place of it at once."""

    values: Sequence[object]
    type: ValueType = ValueType.TEXT

    def __post_init__(self) -> None:
        _check_not_empty(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomNumber:
    """A number between two bounds, each as likely."""

    low: int = 0
    high: int = 1_000_000
    scale: int = 0  #: how many of its digits come after the point: 12345 at scale 2 is 123.45
    type: ValueType = ValueType.INT

    def __post_init__(self) -> None:
        _check_bounds("a number", self.low, self.high)
        _check_fits("low", self.low, self.type)
        _check_fits("high", self.high, self.type)
        if not 0 <= self.scale <= _MOST_DIGITS:
            raise InvalidInput(f"expected scale from 0 to {_MOST_DIGITS}, got {self.scale}")
        if self.scale and self.type is not ValueType.FLOAT:
            raise InvalidInput(f"expected a number of scale {self.scale} to be a float, got {self.type}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NonUniform:
    """TPC-C's NURand: some numbers between two bounds are asked for far more often than others."""

    a: int  #: a power of two, less one
    low: int
    high: int
    c: int = 0
    type: ValueType = ValueType.INT

    def __post_init__(self) -> None:
        _check_bounds("numbers", self.low, self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomText:
    """Letters and digits of a fixed length."""

    length: int = 16
    type: ValueType = ValueType.TEXT

    def __post_init__(self) -> None:
        if self.length < 1:
            raise InvalidInput(f"expected length to be 1 or more, got {self.length}")
        if self.length > _LONGEST_TEXT:
            raise InvalidInput(f"expected length to be at most {_LONGEST_TEXT:,}, got {self.length}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomUuid:
    """A random UUID (version 4), as text."""

    type: ValueType = ValueType.TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """The moment the operation was made ready."""

    type: ValueType = ValueType.TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class SameAs:
    """What an earlier value of the same operation was (counted over all its statements), and something added to it."""

    index: int
    plus: int = 0
    type: ValueType = ValueType.BIGINT


@dataclass(frozen=True, slots=True, kw_only=True)
class Either:
    """One value in most operations, another in the rest."""

    usual: "Value"
    other: "Value"
    share: float  #: of the operations that take the usual one
    type: ValueType = ValueType.INT

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise InvalidInput(f"expected share between 0 and 1, got {self.share}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A value from a list, at the place another value says, counted from 0. Workers may pick the same."""

    values: Sequence[object]
    by: "Value"
    type: ValueType = ValueType.TEXT

    def __post_init__(self) -> None:
        _check_not_empty(self.values)


Value = KeyValue | NewKey | PoolValue | RandomNumber | NonUniform | RandomText | RandomUuid | Now | SameAs | Either | Pick

LARGEST: Mapping[ValueType, int] = {ValueType.INT: 2**31 - 1, ValueType.BIGINT: 2**63 - 1}


def parts(value: Value) -> tuple[Value, ...]:
    """The value itself and those it is made of."""
    match value:
        case Either(usual=usual, other=other):
            return (value, *parts(usual), *parts(other))
        case Pick(by=by):
            return (value, *parts(by))
        case _:
            return (value,)


def _check_bounds(what: str, low: int, high: int) -> None:
    if high < low:
        raise InvalidInput(f"expected {what} with low ≤ high, got low {low} and high {high}")


def _check_fits(name: str, number: int, kind: ValueType) -> None:
    largest = LARGEST.get(kind, number)
    if number > largest:
        raise InvalidInput(f"expected {name} to be at most {largest}, the largest {kind}, got {number}; use another type")
    if kind in LARGEST and number < -largest - 1:
        raise InvalidInput(f"expected {name} to be at least {-largest - 1}, the least {kind}, got {number}; use another type")


def _check_not_empty(values: Sequence[object]) -> None:
    if not len(values):
        raise InvalidInput("expected values with at least one in them, got an empty pool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """SQL with its placeholders numbered $1, $2 …; targets put it into their own words."""

    sql: str
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One unit of load: a statement, or several in a transaction."""

    kind: str
    weight: int
    statements: tuple[Statement, ...]
    reads: bool = False

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise InvalidInput(f"expected the weight of {self.kind} to be 0 or more, got {self.weight}")
        if self.weight and not self.statements:
            raise InvalidInput(f"{self.kind} has a weight of {self.weight} and no SQL; give it SQL or a weight of 0")
        for statement in self.statements:
            check_placeholders(self.kind, statement)
        check_references(self.kind, [value for statement in self.statements for value in statement.values])


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a worker shall do, over and over."""

    name: str
    operations: tuple[Operation, ...]
    think: timedelta = timedelta()

    def __post_init__(self) -> None:
        total = sum(operation.weight for operation in self.operations)
        if total != 100:
            given = ", ".join(f"{operation.kind} {operation.weight}" for operation in self.operations)
            raise InvalidInput(f"expected weights that total 100, got {total} ({given})")
        kinds = [operation.kind for operation in self.operations]
        if len(set(kinds)) != len(kinds):
            raise InvalidInput(f"expected each kind once, got {', '.join(kinds)}")

    @property
    def used(self) -> tuple[Operation, ...]:
        """The operations that have a weight, in order."""
        return tuple(operation for operation in self.operations if operation.weight)


def check_placeholders(kind: str, statement: Statement) -> None:
    """Raise InvalidInput unless each placeholder has a value and each value a placeholder."""
    numbers = {int(found) for found in _placeholders(statement.sql)}
    expected = set(range(1, len(statement.values) + 1))
    if missing := numbers - expected:
        raise InvalidInput(f"{kind}: ${min(missing)} has no value; {len(statement.values)} values are given")
    if unused := expected - numbers:
        raise InvalidInput(f"{kind}: value {min(unused)} has no placeholder ${min(unused)} in: {statement.sql}")


def check_references(kind: str, values: Sequence[Value]) -> None:
    """Raise InvalidInput when a value refers to one that does not come before it."""
    for place, value in enumerate(values):
        for each in parts(value):
            if isinstance(each, SameAs) and not 0 <= each.index < place:
                raise InvalidInput(f"{kind}: value {place + 1} is the same as value {each.index + 1}, which is not before it")


def _placeholders(sql: str) -> list[str]:
    """The numbers after dollar signs, not those inside quotes."""
    return [found for found in re.findall(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\$(\d+)", sql) if found]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSignals:
    """What a database says of its client sessions, our own left out, where it does.

    ``waiting`` is the server's queue: sessions that have an operation to run and cannot go on with it because of other sessions
    (row and table locks; on PostgreSQL also locks of its own and pinned buffers, on MariaDB the states that say "Waiting for").
    An idle session never counts, nor one whose open transaction waits for its client, nor one that reads a disk or sleeps:
    that is work, and shows in ``wait_events`` alone.
    """

    at: timedelta  #: since the driver's start
    sessions: int | None = None
    active: int | None = None  #: sessions that have an operation to run, those that wait among them
    waiting: int | None = None
    lock_waits: int | None = None  #: of those that wait, the ones that wait for a lock somebody's transaction holds
    wait_events: Mapping[str, int] = field(default_factory=dict)  #: sessions by what they wait for, in the server's words
    counters: Mapping[str, float] = field(default_factory=dict)
