"""Generates the four standard statements (point lookup, range scan, insert, update) for any table that allows them.

A kind that the table does not allow is left out, with the reason. The weights of the other kinds are scaled up in proportion
to a total of 100 (whole numbers, by largest remainder; the earlier kind wins a tie).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import floor

from drumbeat.bench.model import (
    LARGEST,
    READS,
    KeyValue,
    Kind,
    Load,
    Operation,
    PoolValue,
    SameAs,
    Statement,
    Value,
    ValueType,
)
from drumbeat.bench.targets.interface import Column, TableDescription
from drumbeat.bench.workloads.columns import (
    SqlDialect,
    argument,
    generated,
    generated_key,
    quoted_column,
    quoted_name,
    sent_type,
)
from drumbeat.bench.workloads.value_pools import ValuePools
from drumbeat.core.errors import InvalidInput

_KINDS = (Kind.POINT_LOOKUP, Kind.RANGE_SCAN, Kind.INSERT, Kind.UPDATE)

PRESETS: Mapping[str, Mapping[Kind, int]] = {
    "read-only": dict(zip(_KINDS, (50, 50, 0, 0), strict=True)),
    "write-only": dict(zip(_KINDS, (0, 0, 70, 30), strict=True)),
    "read-heavy": dict(zip(_KINDS, (40, 40, 15, 5), strict=True)),
    "write-heavy": dict(zip(_KINDS, (10, 10, 60, 20), strict=True)),
    "mixed": dict(zip(_KINDS, (25, 25, 35, 15), strict=True)),
}

SCAN_LENGTH = 100  #: how many keys or rows a range scan reads
_READABLE = "2024-01-31 10:42:00"  #: a time as text that ``value_pools`` can read
_CHANGED_FIRST = (ValueType.TEXT, ValueType.FLOAT, ValueType.INT, ValueType.BIGINT, ValueType.TIMESTAMP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """A load generated for one table, and the kinds of operation that the table does not allow."""

    load: Load
    left_out: Mapping[Kind, str]  #: why each missing kind is not possible


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The input for generating statements: a table, values sampled from it, and the SQL dialect."""

    table: TableDescription
    pools: ValuePools = field(default_factory=ValuePools)
    dialect: SqlDialect = field(default_factory=SqlDialect)

    @property
    def key(self) -> Column | None:
        return next((column for column in self.table.columns if column.name == self.table.key), None)

    @property
    def time(self) -> Column | None:
        return next((column for column in self.table.columns if column.name == self.table.time_column), None)

    def fill(self, sql: str, **names: str) -> str:
        """Replace {table} in SQL by the table's name, and each {name} by the text that ``names`` has for it."""
        for name, text in {"table": quoted_name(self.table.name, self.dialect), **names}.items():
            sql = sql.replace("{" + name + "}", text)
        return sql

    def name(self, column: Column) -> str:
        return quoted_column(column.name, self.dialect)

    def all_names(self) -> str:
        return ", ".join(self.name(column) for column in self.table.columns)


Made = Statement | str  #: a statement, or the reason why there is none


def generate(name: str, subject: Subject, weights: Mapping[Kind, int]) -> Generated:
    """Generate a load with these weights for a table. Raises InvalidInput if the table allows none of the requested kinds."""
    made = {kind: make(subject) for kind, make in _MAKERS.items()}
    left_out = {kind: reason for kind, reason in made.items() if isinstance(reason, str)}
    statements = {kind: statement for kind, statement in made.items() if isinstance(statement, Statement)}
    shares = scaled_weights({kind: weights.get(kind, 0) for kind in statements}, subject.table.name, left_out)
    operations = tuple(
        Operation(kind=kind, weight=shares[kind], statements=(statement,), reads=kind in READS)
        for kind, statement in statements.items()
    )
    return Generated(load=Load(name=name, operations=operations), left_out=left_out)


def scaled_weights(weights: Mapping[Kind, int], table: str, left_out: Mapping[Kind, str]) -> dict[Kind, int]:
    """Scale the weights in proportion, so that they total 100. Raises InvalidInput, with the reasons, if all weights are 0."""
    total = sum(weights.values())
    if not total:
        reasons = "; ".join(f"{kind}: {reason}" for kind, reason in left_out.items())
        raise InvalidInput(f"no operation can be generated for {table}: {reasons}; set workload.operations instead")
    exact = {kind: weight * 100 / total for kind, weight in weights.items()}
    shares = {kind: floor(share) for kind, share in exact.items()}
    by_remainder = sorted(shares, key=lambda kind: shares[kind] - exact[kind])
    for kind in by_remainder[: 100 - sum(shares.values())]:
        shares[kind] += 1
    return shares


def point_lookup(subject: Subject) -> Made:
    """Generate a statement that selects one row by its key."""
    key, value = subject.key, _existing_key(subject)
    if key is None or isinstance(value, str):
        return _no_key(subject) if key is None else str(value)
    sql = subject.fill(
        "SELECT {columns} FROM {table} WHERE {key} = {value}",
        columns=subject.all_names(),
        key=subject.name(key),
        value=argument(key, 1, subject.dialect),
    )
    return Statement(sql=sql, values=(value,))


def range_scan(subject: Subject) -> Made:
    """Generate a range scan: of 100 consecutive keys if the key is a number; else of the 100 rows from a sampled time on."""
    key = subject.key
    if key is not None and key.type in LARGEST:
        return _key_range(subject, key)
    if subject.time is not None:
        return _time_range(subject, subject.time)
    return f"{subject.table.name} has neither a numeric key nor a time column"


def _key_range(subject: Subject, key: Column) -> Made:
    value = _existing_key(subject)
    if isinstance(value, str):
        return value
    sql = subject.fill(
        "SELECT {columns} FROM {table} WHERE {key} >= {low} AND {key} < {high}",
        columns=subject.all_names(),
        key=subject.name(key),
        low=argument(key, 1, subject.dialect),
        high=argument(key, 2, subject.dialect),
    )
    return Statement(sql=sql, values=(value, SameAs(index=0, plus=SCAN_LENGTH, type=key.type)))


def _time_range(subject: Subject, time: Column) -> Made:
    if not subject.pools.ranges:
        return (
            f"no values of {time.name} are known: the table is empty, or it has no times that can be read, such as {_READABLE}"
        )
    sql = subject.fill(
        "SELECT {columns} FROM {table} WHERE {time} >= {low} ORDER BY {time} LIMIT {count}",
        columns=subject.all_names(),
        time=subject.name(time),
        low=argument(time, 1, subject.dialect),
        count=str(SCAN_LENGTH),
    )
    return Statement(sql=sql, values=(PoolValue(values=subject.pools.ranges, type=ValueType.TIMESTAMP),))


def insert(subject: Subject) -> Made:
    """Generate an insert with a new key and a value for every column; columns of unsupported types stay null."""
    if subject.table.read_only:
        return f"{subject.table.name} {subject.table.read_only}"
    values: dict[Column, Value] = {}
    for column in subject.table.columns:
        value = _inserted(subject, column)
        if isinstance(value, str):
            return value
        if value is not None:
            values[column] = value
    sql = subject.fill(
        "INSERT INTO {table} ({columns}) VALUES ({values})",
        columns=", ".join(subject.name(column) for column in values),
        values=", ".join(argument(column, number, subject.dialect) for number, column in enumerate(values, 1)),
    )
    return Statement(sql=sql, values=tuple(values.values()))


def _inserted(subject: Subject, column: Column) -> Value | str | None:
    if column.name == subject.table.key:
        return generated_key(column, subject.table.name, subject.table.key_high)
    value = _written(subject, column)
    if value is None and not column.nullable:
        return f"{column.name} must not be null, and no value can be generated for its type {column.native_type}"
    return value


def update(subject: Subject) -> Made:
    """Generate an update of one column, never the key; prefers a text column that does not refer to another table."""
    key, value = subject.key, _existing_key(subject)
    if subject.table.read_only:
        return f"{subject.table.name} {subject.table.read_only}"
    if key is None or isinstance(value, str):
        return _no_key(subject) if key is None else str(value)
    others = [column for column in subject.table.columns if column is not key and generated(column) is not None]
    if not others:
        return f"{subject.table.name} has no column besides its key that a value can be generated for"
    changed = min(others, key=lambda column: (_is_reference(column), _CHANGED_FIRST.index(column.type)))
    sql = subject.fill(
        "UPDATE {table} SET {column} = {new} WHERE {key} = {value}",
        column=subject.name(changed),
        new=argument(changed, 1, subject.dialect),
        key=subject.name(key),
        value=argument(key, 2, subject.dialect),
    )
    return Statement(sql=sql, values=(_written(subject, changed) or value, value))


_MAKERS: Mapping[Kind, Callable[[Subject], Made]] = {
    Kind.POINT_LOOKUP: point_lookup,
    Kind.RANGE_SCAN: range_scan,
    Kind.INSERT: insert,
    Kind.UPDATE: update,
}


def _existing_key(subject: Subject) -> Value | str:
    """Return a source of existing keys: sampled keys if there are any, else all numbers from the lowest to the highest key. If
    there is none, return the reason as text."""
    table, key = subject.table, subject.key
    sampled = subject.pools.keys or subject.pools.rows.get(table.key or "", ())
    if key is not None and sampled and isinstance(sampled[0], bytes | bytearray | memoryview):
        return f"its key {key.name} of type {key.native_type} holds bytes, which cannot be sent as values"
    if key is not None and sampled:
        return PoolValue(values=sampled, type=sent_type(key))
    if key is not None and key.type is ValueType.TIMESTAMP:
        return (
            f"no keys of {table.name} are known: the table is empty, or it has no times that can be read, such as {_READABLE}"
        )
    if key is None or table.key_low is None or table.key_high is None:
        return f"no keys of {table.name} are known: the table is empty, or no values were sampled from it"
    return KeyValue(low=table.key_low, high=table.key_high, type=key.type)


def _written(subject: Subject, column: Column) -> Value | None:
    """Return a source of values to write to a column: sampled values if its name ends with ``_id``, else generated ones; None
    if no values can be generated."""
    sampled = subject.pools.rows.get(column.name, ())
    if sampled and _is_reference(column):
        return PoolValue(values=sampled, type=sent_type(column))
    return generated(column)


def _is_reference(column: Column) -> bool:
    return column.name.lower().endswith("_id")


def _no_key(subject: Subject) -> str:
    return f"{subject.table.name} has no primary key of one column"
