"""A load: the operations that workers repeat, their SQL, and the sources of their values. Validated on creation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from drumbeat.bench.model.sql_text import placeholders
from drumbeat.core.errors import InvalidInput


class Kind(StrEnum):
    """The standard kinds of operation. A custom operation can have any other name."""

    POINT_LOOKUP = "POINT_LOOKUP"
    RANGE_SCAN = "RANGE_SCAN"
    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


_LONGEST_TEXT = 65_536  #: workers generate thousands of operations in advance; longer texts would take gigabytes
_MOST_DIGITS = 18
READS = frozenset({Kind.POINT_LOOKUP, Kind.RANGE_SCAN})


class ErrorClass(StrEnum):
    """The class of an operation's error, with the same names for every database product."""

    CONNECTION = "CONNECTION"  #: the connection was lost or could not be opened
    QUERY_TIMEOUT = "QUERY_TIMEOUT"
    DATABASE_ERROR = "DATABASE_ERROR"  #: the database returned an error, with an SQLSTATE or number
    CONFIGURATION = "CONFIGURATION"  #: the operation can never succeed as it is configured
    FATAL = "FATAL"  #: the worker cannot continue


class ValueType(StrEnum):
    """The SQL type of a value."""

    INT = "int"  #: a whole number of 4 bytes
    BIGINT = "bigint"
    FLOAT = "float"
    TEXT = "text"
    TIMESTAMP = "timestamp"


class Distribution(StrEnum):
    """How the existing keys that operations use are chosen."""

    UNIFORM = "uniform"
    ZIPFIAN = "zipfian"  #: few keys get most of the load; they are scattered over the key range
    HOTSPOT = "hotspot"  #: ``hot_share`` of the keys get ``hot_load`` of the load
    SEQUENTIAL = "sequential"  #: one after the other; each worker has its own keys
    LATEST = "latest"  #: prefers the newest keys


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A value source of new keys for inserts. Each worker has its own range of keys, chosen by its slot number."""

    first: int  #: the first new key; must be above all existing keys
    span: int = 1_000_000_000  #: how many keys one worker can use
    table: str = ""  #: the table that gets the keys; ``first`` is moved above its existing keys when a run begins
    column: str = ""  #: the column that gets the keys
    type: ValueType = ValueType.BIGINT

    def __post_init__(self) -> None:
        if self.span < 1:
            raise InvalidInput(f"expected span to be 1 or more, got {self.span}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    """A value source of existing keys from ``low`` to ``high``, chosen by a distribution."""

    low: int = 1
    high: int = 1
    distribution: Distribution = Distribution.UNIFORM
    theta: float = 0.99  #: zipfian and latest: the skew; closer to 1, fewer keys get most of the load
    hot_share: float = 0.2  #: hotspot: the share of the keys that are hot
    hot_load: float = 0.8  #: hotspot: the share of the load on the hot keys
    inserted: NewKey | None = None  #: latest: the source of the keys that this worker inserts
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
    """A value source that repeats a list of sampled values in order; each worker uses different positions of the list."""

    values: Sequence[object]
    type: ValueType = ValueType.TEXT

    def __post_init__(self) -> None:
        _check_not_empty(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomNumber:
    """A value source of uniformly distributed random numbers from ``low`` to ``high``."""

    low: int = 0
    high: int = 1_000_000
    scale: int = 0  #: decimal places: 12345 at scale 2 is 123.45
    type: ValueType = ValueType.INT

    def __post_init__(self) -> None:
        _check_bounds("a number", self.low, self.high)
        _check_fits("low", self.low, self.type)
        _check_fits("high", self.high, self.type)
        if not 0 <= self.scale <= _MOST_DIGITS:
            raise InvalidInput(f"expected scale from 0 to {_MOST_DIGITS}, got {self.scale}")
        if self.scale and self.type is not ValueType.FLOAT:
            raise InvalidInput(f"expected type float for a number with scale {self.scale} (decimal places), got {self.type}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NonUniform:
    """A value source of TPC-C's NURand: non-uniformly distributed random numbers from ``low`` to ``high``."""

    a: int  #: TPC-C's constant A: a power of two minus one
    low: int
    high: int
    c: int = 0
    type: ValueType = ValueType.INT

    def __post_init__(self) -> None:
        _check_bounds("numbers", self.low, self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomText:
    """A value source of random texts of a fixed length (letters and digits)."""

    length: int = 16
    type: ValueType = ValueType.TEXT

    def __post_init__(self) -> None:
        if self.length < 1:
            raise InvalidInput(f"expected length to be 1 or more, got {self.length}")
        if self.length > _LONGEST_TEXT:
            raise InvalidInput(f"expected length to be at most {_LONGEST_TEXT:,}, got {self.length}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomUuid:
    """A value source of random UUIDs (version 4), as text."""

    type: ValueType = ValueType.TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """A value source that gives the time when the operation was generated."""

    type: ValueType = ValueType.TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class SameAs:
    """A value source that takes an earlier value of the same operation (``index``, from 0) and adds ``plus`` to it."""

    index: int
    plus: int = 0
    type: ValueType = ValueType.BIGINT


@dataclass(frozen=True, slots=True, kw_only=True)
class Either:
    """A value source that uses one of two other sources, chosen at random for each operation."""

    usual: "Value"
    other: "Value"
    share: float  #: how often ``usual`` is chosen, from 0 to 1
    type: ValueType = ValueType.INT

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise InvalidInput(f"expected share between 0 and 1, got {self.share}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A value source that picks from a list, at the index that another source gives. Workers can pick the same values."""

    values: Sequence[object]
    by: "Value"
    type: ValueType = ValueType.TEXT

    def __post_init__(self) -> None:
        _check_not_empty(self.values)


Value = KeyValue | NewKey | PoolValue | RandomNumber | NonUniform | RandomText | RandomUuid | Now | SameAs | Either | Pick

LARGEST: Mapping[ValueType, int] = {ValueType.INT: 2**31 - 1, ValueType.BIGINT: 2**63 - 1}


def parts(value: Value) -> tuple[Value, ...]:
    """Return the value source itself and all value sources nested in it."""
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
        raise InvalidInput(f"expected {name} to be at least {-largest - 1}, the lowest {kind}, got {number}; use another type")


def _check_not_empty(values: Sequence[object]) -> None:
    if not len(values):
        raise InvalidInput("expected the values of a value source to be a list of at least one value, got an empty list")


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """SQL with placeholders $1, $2 …, and a value source for each. Database adapters translate placeholders for drivers."""

    sql: str
    values: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One kind of operation, measured as a unit: one SQL statement, or several in a transaction."""

    kind: str
    weight: int
    statements: tuple[Statement, ...]
    reads: bool = False

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise InvalidInput(f"expected the weight of {self.kind} to be 0 or more, got {self.weight}")
        if self.weight and not self.statements:
            raise InvalidInput(f"{self.kind} has a weight of {self.weight} but no SQL; add SQL or set the weight to 0")
        for statement in self.statements:
            check_placeholders(self.kind, statement)
        check_references(self.kind, [value for statement in self.statements for value in statement.values])


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The operations that a worker repeats, each as often as its weight says (in percent)."""

    name: str
    operations: tuple[Operation, ...]
    think: timedelta = timedelta()

    def __post_init__(self) -> None:
        total = sum(operation.weight for operation in self.operations)
        if total != 100:
            given = ", ".join(f"{operation.kind} {operation.weight}" for operation in self.operations)
            raise InvalidInput(f"expected weights that total 100, got {total} ({given}); change the weights")
        kinds = [operation.kind for operation in self.operations]
        if len(set(kinds)) != len(kinds):
            raise InvalidInput(f"expected each kind of operation once, got {', '.join(kinds)}; rename one")

    @property
    def used(self) -> tuple[Operation, ...]:
        """Return the operations with a weight above 0."""
        return tuple(operation for operation in self.operations if operation.weight)


def check_placeholders(kind: str, statement: Statement) -> None:
    """Raise InvalidInput unless each placeholder has a value and each value a placeholder."""
    numbers = {int(found) for found in placeholders(statement.sql)}
    expected = set(range(1, len(statement.values) + 1))
    if missing := numbers - expected:
        raise InvalidInput(f"{kind}: the placeholder ${min(missing)} has no value; got only {len(statement.values)} values")
    if unused := expected - numbers:
        raise InvalidInput(f"{kind}: value {min(unused)} has no placeholder ${min(unused)} in: {statement.sql}")


def check_references(kind: str, values: Sequence[Value]) -> None:
    """Raise InvalidInput if a ``SameAs`` value refers to a value that does not come before it."""
    for number, value in enumerate(values):
        for each in parts(value):
            if isinstance(each, SameAs) and not 0 <= each.index < number:
                raise InvalidInput(f"{kind}: value {number + 1} refers to value {each.index + 1}, expected an earlier one")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSignals:
    """How many client sessions a database has at one moment, and how many wait. The session that reads this is not counted.

    ``waiting`` counts sessions that other sessions block (row and table locks; on PostgreSQL also internal locks and pinned
    buffers, on MariaDB the states that begin with "Waiting for"). Idle sessions, transactions that wait for their client,
    and sessions that read from disk or sleep are not counted there, only in ``wait_events``.
    """

    at: timedelta  #: time since the driver (the load generator) started
    sessions: int | None = None
    active: int | None = None  #: sessions that run an operation, including the waiting ones
    waiting: int | None = None
    lock_waits: int | None = None  #: waiting sessions that wait for another transaction's lock
    wait_events: Mapping[str, int] = field(default_factory=dict)  #: number of sessions by the server's name of the wait event
    counters: Mapping[str, float] = field(default_factory=dict)
