"""The seeds' own four queries: SQL with ? or $1 for values, whose sources follow from the kind and the table (§2.6)."""

import re
from collections.abc import Mapping, Sequence

from drumbeat.bench.model import READS, Kind, Load, Operation, PoolValue, SameAs, Statement, Value, ValueType
from drumbeat.bench.targets.interface import Column
from drumbeat.bench.templates.blocks import WorkloadBlock
from drumbeat.bench.workloads.columns import generated, generated_key, named
from drumbeat.bench.workloads.sql_generation import PRESETS, Subject, point_lookup
from drumbeat.core.errors import InvalidInput

_TOKENS = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|(?P<mark>\?)|\$(?P<number>\d+)", re.DOTALL)
_NAME = r"[\"`]?(\w+)[\"`]?"
_INSERTED = re.compile(r"\bINTO\s+[^\s(]+\s*\(([^)]*)\)", re.IGNORECASE)
_CHANGED = re.compile(rf"\bSET\s+{_NAME}\s*=", re.IGNORECASE)


def custom_load(workload: WorkloadBlock, subject: Subject) -> Load:
    """The four queries with where their values come from. Raises InvalidInput naming the field."""
    weights = shares(workload)
    operations = [
        Operation(
            kind=kind, weight=weight, statements=(_statement(kind, workload.custom_sql[kind], subject),), reads=kind in READS
        )
        for kind, weight in weights.items()
        if weight
    ]
    return Load(name=workload.name or "custom", operations=tuple(operations))


def shares(workload: WorkloadBlock) -> Mapping[Kind, int]:
    """What is said; else a preset's, or the seeds' usual mix where there is SQL for all of it."""
    sql = workload.custom_sql
    weights = PRESETS[workload.preset] if workload.preset else workload.custom_weights or PRESETS["mixed"]
    if missing := [kind for kind, weight in weights.items() if weight and kind not in sql]:
        name = missing[0].lower()
        raise InvalidInput(
            f"workload.custom_{name}_query: expected SQL for the {weights[missing[0]]} % {missing[0]}; "
            f"give it, or the percentages you want as workload.custom_*_pct"
        )
    return weights


def _statement(kind: Kind, sql: str, subject: Subject) -> Statement:
    text, count = numbered(with_table(sql, subject))
    field = f"workload.custom_{kind.lower()}_query"
    values = _SOURCES[kind](field, text, count, subject) if count else ()
    if len(values) != count:
        raise InvalidInput(f"{field}: expected {len(values)} placeholders, got {count} in: {text}; or use workload.operations")
    return Statement(sql=text, values=tuple(values))


def with_table(sql: str, subject: Subject) -> str:
    """{table} replaced by the table's qualified name, quoted."""
    return sql.replace("{table}", named(subject.table.name, subject.words))


def numbered(sql: str) -> tuple[str, int]:
    """Question marks as $1, $2 …, and how many values there are. What is quoted or a comment stays; so do $1, $2 …"""
    numbers = [int(found["number"]) for found in _TOKENS.finditer(sql) if found["number"]]
    if numbers:
        return sql, max(numbers)
    count = 0

    def replaced(found: re.Match[str]) -> str:
        nonlocal count
        count += found["mark"] is not None
        return f"${count}" if found["mark"] else found[0]

    return _TOKENS.sub(replaced, sql), count


def _key(field: str, subject: Subject) -> Value:
    made = point_lookup(subject)
    if isinstance(made, str):
        raise InvalidInput(f"{field}: {made}; use workload.operations to say where its values come from")
    return made.values[0]


def _lookup(field: str, sql: str, count: int, subject: Subject) -> Sequence[Value]:
    """The same key for each placeholder."""
    key = _key(field, subject)
    return [key, *(SameAs(index=0, type=key.type) for _ in range(count - 1))]


def _scan(field: str, sql: str, count: int, subject: Subject) -> Sequence[Value]:
    """One value: a moment to begin at; two: a key, twice."""
    if count == 1 and subject.pools.ranges:
        return [PoolValue(values=subject.pools.ranges, type=ValueType.TIMESTAMP)]
    return _lookup(field, sql, min(count, 2), subject)


def _insert(field: str, sql: str, count: int, subject: Subject) -> Sequence[Value]:
    """One value for each column that is named; for every column when none are."""
    found = _INSERTED.search(sql)
    names = (
        [each.strip().strip('"`') for each in found[1].split(",")] if found else [each.name for each in subject.table.columns]
    )
    return [_new(field, _column(field, name, subject), subject) for name in names]


def _update(field: str, sql: str, count: int, subject: Subject) -> Sequence[Value]:
    """A key; or a new value for the column that is set, and a key."""
    key = _key(field, subject)
    if count == 1:
        return [key]
    found = _CHANGED.search(sql)
    if found is None:
        raise InvalidInput(f"{field}: expected a column after SET, got none in: {sql}")
    return [_new(field, _column(field, found[1], subject), subject), key]


_SOURCES = {Kind.POINT_LOOKUP: _lookup, Kind.RANGE_SCAN: _scan, Kind.INSERT: _insert, Kind.UPDATE: _update}


def _column(field: str, name: str, subject: Subject) -> Column:
    column = next((each for each in subject.table.columns if each.name.lower() == name.lower()), None)
    if column is None:
        raise InvalidInput(f"{field}: {subject.table.name} has no column {name!r}")
    return column


def _new(field: str, column: Column, subject: Subject) -> Value:
    table = subject.table
    value = generated_key(column, table.name, table.key_high) if column.name == table.key else generated(column)
    if value is None or isinstance(value, str):
        why = value or f"nothing can be made up for {column.name}, {column.native_type}"
        raise InvalidInput(f"{field}: {why}; use workload.operations to say where its values come from")
    return value
