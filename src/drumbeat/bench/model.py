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
class KeyValue:
    """A key between two bounds, chosen by a distribution."""

    low: int = 1
    high: int = 1
    distribution: Distribution = Distribution.UNIFORM
    theta: float = 0.99  #: zipfian, latest: how skewed
    hot_share: float = 0.2  #: hotspot: this share of the keys …
    hot_load: float = 0.8  #: … takes this share of the load
    type: ValueType = ValueType.BIGINT

    def __post_init__(self) -> None:
        if self.high < self.low:
            raise InvalidInput(f"expected keys with low ≤ high, got {self.low} and {self.high}")
        if not 0 < self.theta < 1:
            raise InvalidInput(f"expected theta between 0 and 1, got {self.theta}")
        for name in ("hot_share", "hot_load"):
            if not 0 < getattr(self, name) <= 1:
                raise InvalidInput(f"expected {name} between 0 and 1, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key no worker has used: each has a range of its own, by its slot."""

    first: int  #: above every key that is there
    span: int = 1_000_000_000  #: how many keys one slot may use
    type: ValueType = ValueType.BIGINT


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolValue:
    """A value from a list prepared before the run; workers never use the same place of it at once."""

    values: Sequence[object]
    type: ValueType = ValueType.TEXT

    def __post_init__(self) -> None:
        if not self.values:
            raise InvalidInput("expected a pool with at least one value, got an empty one")


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomNumber:
    """A number between two bounds, each as likely."""

    low: int = 0
    high: int = 1_000_000
    type: ValueType = ValueType.INT


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomText:
    """Letters and digits of a fixed length."""

    length: int = 16
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


Value = KeyValue | NewKey | PoolValue | RandomNumber | RandomText | Now | SameAs


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


def _placeholders(sql: str) -> list[str]:
    return re.findall(r"\$(\d+)", sql)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSignals:
    """What a database says of itself, where it does."""

    at: timedelta  #: since the driver's start
    sessions: int | None = None
    waiting: int | None = None  #: sessions that wait for something
    lock_waits: int | None = None
    counters: Mapping[str, float] = field(default_factory=dict)
