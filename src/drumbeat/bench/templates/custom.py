"""Builds a load from the ``custom_*_query`` fields. Chooses value sources for placeholders by kind of operation and table."""

import itertools
import re
from collections.abc import Mapping, Sequence

from drumbeat.bench.model import READS, Kind, Load, Operation, PoolValue, SameAs, Statement, Value, ValueType
from drumbeat.bench.model.sql_text import IDENTIFIER, code_of, name_parts, placeholders, replace_marks, replace_numbers
from drumbeat.bench.targets.interface import Column
from drumbeat.bench.templates.blocks import WorkloadBlock
from drumbeat.bench.workloads.columns import SqlDialect, argument, generated, generated_key, is_wide_decimal, quoted_name
from drumbeat.bench.workloads.sql_generation import PRESETS, Subject, point_lookup
from drumbeat.core.errors import InvalidInput
from drumbeat.core.plain import whole_number

_MOST_PLACEHOLDERS = 1000
_UNCAST = SqlDialect()  #: casts only what is sent as text
_NAME = rf"{IDENTIFIER}(?:\s*\.\s*{IDENTIFIER})*"
_INSERTED = re.compile(rf"\bINTO\s+{_NAME}\s*\(\s*({_NAME}(?:\s*,\s*{_NAME})*)\s*\)", re.IGNORECASE)
_CHANGED = re.compile(rf"\bSET\s+({_NAME})\s*=", re.IGNORECASE)


def custom_load(workload: WorkloadBlock, subject: Subject) -> Load:
    """Build the load of the custom queries, with their value sources. Raises InvalidInput, which names the invalid field."""
    weights = weights_of(workload)
    operations = [
        Operation(
            kind=kind, weight=weight, statements=(_statement(kind, workload.custom_sql[kind], subject),), reads=kind in READS
        )
        for kind, weight in weights.items()
        if weight
    ]
    return Load(name=workload.name or "custom", operations=tuple(operations))


def weights_of(workload: WorkloadBlock) -> Mapping[Kind, int]:
    """Return the percentage of each kind of operation: from the preset, else ``custom_*_pct``, else the preset "mixed"."""
    sql = workload.custom_sql
    weights = PRESETS[workload.preset] if workload.preset else workload.custom_weights or PRESETS["mixed"]
    if missing := [kind for kind, weight in weights.items() if weight and kind not in sql]:
        name = missing[0].lower()
        raise InvalidInput(
            f"workload.custom_{name}_query: expected SQL for the {weights[missing[0]]} % {missing[0]} operations; "
            f"add it, or change the percentages in workload.custom_*_pct"
        )
    return weights


def _statement(kind: Kind, sql: str, subject: Subject) -> Statement:
    text, count = numbered(with_table(sql, subject))
    field = f"workload.custom_{kind.lower()}_query"
    values = _SOURCES[kind](field, text, count, subject) if count else ()
    if len(values) != count:
        raise InvalidInput(
            f"{field}: expected {len(values)} placeholders, got {count} in {text!r}; correct the SQL or use workload.operations"
        )
    return Statement(sql=_with_casts(text, values, subject.key), values=tuple(values))


def _with_casts(sql: str, values: Sequence[Value], key: Column | None) -> str:
    """Return SQL in which each placeholder of an existing key is cast, if such keys are sent as text."""
    if key is None or not is_wide_decimal(key):
        return sql
    keys = {
        str(number)
        for number, value in enumerate(values, 1)
        if isinstance(value, PoolValue | SameAs) and value.type is ValueType.TEXT
    }
    return replace_numbers(sql, lambda number: argument(key, int(number), _UNCAST) if number in keys else f"${number}")


def with_table(sql: str, subject: Subject) -> str:
    """Replace {table} in SQL by the quoted name of the table, with its schema."""
    return sql.replace("{table}", quoted_name(subject.table.name, subject.dialect))


def numbered(sql: str) -> tuple[str, int]:
    """Replace each ? outside quotes and comments by $1, $2 …; SQL that already has such placeholders stays unchanged. Returns
    the SQL and the number of placeholders."""
    numbers = [_number(found) for found in placeholders(sql)]
    if numbers:
        return sql, max(numbers)
    counter = itertools.count(1)
    text = replace_marks(sql, lambda: f"${next(counter)}")
    return text, next(counter) - 1


def _number(digits: str) -> int:
    number = whole_number(digits)
    if number is None or not 1 <= number <= _MOST_PLACEHOLDERS:
        raise InvalidInput(
            f"workload.custom_*_query: expected placeholders from $1 to ${_MOST_PLACEHOLDERS}, got ${digits[:9]}; correct it"
        )
    return number


def _key(field: str, subject: Subject) -> Value:
    made = point_lookup(subject)
    if isinstance(made, str):
        raise InvalidInput(f"{field}: {made}; use workload.operations, where each placeholder gets a value source")
    return made.values[0]


def _lookup(field: str, sql: str, count: int, subject: Subject) -> Sequence[Value]:
    """Return value sources for a point lookup: every placeholder gets the same key."""
    key = _key(field, subject)
    return [key, *(SameAs(index=0, type=key.type) for _ in range(count - 1))]


def _scan(field: str, sql: str, count: int, subject: Subject) -> Sequence[Value]:
    """Return value sources for a range scan. A single placeholder gets a sampled time, if times were sampled; otherwise all
    placeholders get the same key."""
    if count == 1 and subject.pools.ranges:
        return [PoolValue(values=subject.pools.ranges, type=ValueType.TIMESTAMP)]
    return _lookup(field, sql, min(count, 2), subject)


def _insert(field: str, sql: str, count: int, subject: Subject) -> Sequence[Value]:
    """Return a source of new values for each column that the INSERT lists, or for all columns if it lists none."""
    found = _INSERTED.search(code_of(sql))
    columns = [_column(field, name, subject) for name in re.findall(_NAME, found[1])] if found else subject.table.columns
    return [_new(field, column, subject) for column in columns]


def _update(field: str, sql: str, count: int, subject: Subject) -> Sequence[Value]:
    """Return value sources for an UPDATE: a key if it has one placeholder, else a new value for the SET column, and a key."""
    key = _key(field, subject)
    if count == 1:
        return [key]
    found = _CHANGED.search(code_of(sql))
    if found is None:
        raise InvalidInput(f"{field}: expected a column after SET, got none in: {sql}")
    return [_new(field, _column(field, found[1], subject), subject), key]


_SOURCES = {Kind.POINT_LOOKUP: _lookup, Kind.RANGE_SCAN: _scan, Kind.INSERT: _insert, Kind.UPDATE: _update}


def _column(field: str, name: str, subject: Subject) -> Column:
    """Return the column that has a name as the SQL writes it: with or without quotes, with or without its table."""
    bare = name_parts(name)[-1].text.strip()
    column = next((each for each in subject.table.columns if _bare(each.name).lower() == bare.lower()), None)
    if column is None:
        raise InvalidInput(f"{field}: {subject.table.name} has no column {bare!r}; correct the SQL")
    return column


def _bare(name: str) -> str:
    """Return a column's name without quotes. Snowflake's names that need quotes are described with them."""
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] == '"' else name


def _new(field: str, column: Column, subject: Subject) -> Value:
    table = subject.table
    value = generated_key(column, table.name, table.key_high) if column.name == table.key else generated(column)
    if value is None or isinstance(value, str):
        reason = value or f"no value can be generated for {column.name} of type {column.native_type}"
        raise InvalidInput(f"{field}: {reason}; use workload.operations, where each placeholder gets a value source")
    return value
