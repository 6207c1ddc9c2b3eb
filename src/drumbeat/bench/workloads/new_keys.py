"""Changes a load so that it inserts only keys above the highest existing key, which is read once when a run begins."""

from collections.abc import Mapping
from dataclasses import replace

from drumbeat.bench.model import LARGEST, Either, KeyValue, Load, NewKey, Operation, Pick, Statement, Value, parts
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.values.draw import VIRTUAL_SLOTS
from drumbeat.bench.workloads.columns import dialect_of, quoted_column, quoted_name
from drumbeat.core.errors import InvalidInput

_HIGHEST = "SELECT MAX({column}) FROM {table}"


async def with_keys_above_existing(target: Target, load: Load) -> Load:
    """Return the load, changed so that it inserts only keys above the highest key that each table has now.

    Call it only once, when a run starts, and give every worker the result: if workers read the highest key at different
    times, their ranges of new keys would overlap. Raises InvalidInput if a column has no room left for new keys.
    """
    return above(load, await highest_keys(target, load))


async def highest_keys(target: Target, load: Load) -> dict[str, int]:
    """Read the highest key of each column that gets new keys, by ``table.column``; tables without rows are left out."""
    found = {_name(key): await _highest(target, key) for key in sorted(_new_keys(load), key=repr)}
    return {name: highest for name, highest in found.items() if highest is not None}


def above(load: Load, highest: Mapping[str, int]) -> Load:
    """Return the load, changed so that it inserts only keys above these highest keys, given by ``table.column``."""
    moved = {key: _above_highest(key, highest[_name(key)]) for key in _new_keys(load) if _name(key) in highest}
    return replace(load, operations=tuple(_operation(each, moved) for each in load.operations))


def _new_keys(load: Load) -> set[NewKey]:
    values = [value for each in load.operations for statement in each.statements for value in statement.values]
    inner = [part for value in values for part in parts(value)]
    inserted = [part.inserted for part in inner if isinstance(part, KeyValue) and part.inserted]
    return {key for key in (*inner, *inserted) if isinstance(key, NewKey) and key.table and key.column}


def _name(key: NewKey) -> str:
    return f"{key.table}.{key.column}"


async def _highest(target: Target, key: NewKey) -> int | None:
    dialect = dialect_of(target.traits.name)
    sql = _HIGHEST.replace("{column}", quoted_column(key.column, dialect)).replace("{table}", quoted_name(key.table, dialect))
    highest = (await target.fetch(sql))[0][0]
    return None if highest is None else int(highest)


def _above_highest(key: NewKey, highest: int) -> NewKey:
    """Return a source of keys above the highest key, with fewer keys per worker if the column's type is too small."""
    first = max(key.first, highest + 1)
    span = min(key.span, (LARGEST.get(key.type, 2**63 - 1) - first) // VIRTUAL_SLOTS)
    if span < 1:
        raise InvalidInput(
            f"{key.table}.{key.column} has reached {highest}, so there is no room for new keys; delete the highest keys"
        )
    return replace(key, first=first, span=span)


def _operation(operation: Operation, moved: dict[NewKey, NewKey]) -> Operation:
    statements = (_statement(each, moved) for each in operation.statements)
    return replace(operation, statements=tuple(statements))


def _statement(statement: Statement, moved: dict[NewKey, NewKey]) -> Statement:
    return replace(statement, values=tuple(_value(each, moved) for each in statement.values))


def _value(value: Value, moved: dict[NewKey, NewKey]) -> Value:
    match value:
        case NewKey():
            return moved.get(value, value)
        case KeyValue(inserted=NewKey() as inserted):
            return replace(value, inserted=moved.get(inserted, inserted))
        case Either(usual=usual, other=other):
            return replace(value, usual=_value(usual, moved), other=_value(other, moved))
        case Pick(by=by):
            return replace(value, by=_value(by, moved))
        case _:
            return value
