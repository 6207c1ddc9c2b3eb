"""Sharding: divides the keys into partitions; each worker uses only the keys of its own partition. No I/O.

A worker's partition is its slot (its number in the run) modulo the number of partitions. Sharding affects only ``key``
values: new keys and sampled values are divided among the slots anyway.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from drumbeat.bench.model import Distribution, Either, KeyValue, Load, Operation, Pick, Statement, Value, parts
from drumbeat.bench.values.draw import VIRTUAL_SLOTS
from drumbeat.core.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How keys are divided into partitions."""

    partitions: int
    column: str | None = None  #: only statements that name this column are sharded; None: all
    low: int | None = None  #: the first key of the range that is divided; None: each value source's own range
    high: int | None = None


def sharding_of(block: Mapping[str, Any] | None) -> Sharding | None:
    """Read the ``sharding`` block of a template or run; None if it is not enabled. Raises InvalidInput."""
    if not block or not block.get("enabled"):
        return None
    if block.get("total_partitions") is None:
        raise InvalidInput(
            "sharding.total_partitions: expected the number of partitions that the keys are divided into, got no value"
        )
    low, high = block.get("key_range") or (None, None)
    if low is not None and high is not None and high - low + 1 < block["total_partitions"]:
        raise InvalidInput(
            f"sharding.key_range: expected at least one key for each of {block['total_partitions']} total_partitions, "
            f"got {low} to {high}"
        )
    return Sharding(partitions=int(block["total_partitions"]), column=block.get("key_column"), low=low, high=high)


def sharded(load: Load, sharding: Sharding | None, slot: int) -> Load:
    """Return a worker's load, limited to its partition of the keys. Raises InvalidInput if the partition has too few keys."""
    if sharding is None:
        return load
    return replace(load, operations=tuple(_operation(each, sharding, slot) for each in load.operations))


def check_sharding(load: Load, sharding: Sharding | None) -> None:
    """Raise InvalidInput if sharding would have no effect, or if a worker's partition would have too few keys."""
    if sharding is None:
        return
    if not any(_keys_of(load, sharding)):
        where = f" in a statement that names {sharding.column}" if sharding.column else ""
        raise InvalidInput(f"sharding: expected an operation with a 'key' value{where}, got none; disable sharding")
    for slot in range(min(VIRTUAL_SLOTS, sharding.partitions)):
        sharded(load, sharding, slot)


def _keys_of(load: Load, sharding: Sharding) -> Iterator[KeyValue]:
    for operation in load.used:
        for statement in operation.statements:
            if _is_sharded(statement, sharding):
                yield from (part for value in statement.values for part in parts(value) if isinstance(part, KeyValue))


def _is_sharded(statement: Statement, sharding: Sharding) -> bool:
    column = sharding.column
    return column is None or re.search(rf"\b{re.escape(column)}\b", statement.sql, re.IGNORECASE) is not None


def _operation(operation: Operation, sharding: Sharding, slot: int) -> Operation:
    statements = (_statement(each, operation.kind, sharding, slot) for each in operation.statements)
    return replace(operation, statements=tuple(statements))


def _statement(statement: Statement, kind: str, sharding: Sharding, slot: int) -> Statement:
    if not _is_sharded(statement, sharding):
        return statement
    return replace(statement, values=tuple(_value(each, kind, sharding, slot) for each in statement.values))


def _value(value: Value, kind: str, sharding: Sharding, slot: int) -> Value:
    match value:
        case KeyValue():
            return _within(value, kind, sharding, slot)
        case Either(usual=usual, other=other):
            return replace(value, usual=_value(usual, kind, sharding, slot), other=_value(other, kind, sharding, slot))
        case Pick(by=by):
            return replace(value, by=_value(by, kind, sharding, slot))
        case _:
            return value


def _within(key: KeyValue, kind: str, sharding: Sharding, slot: int) -> KeyValue:
    begin, end = partition(sharding, slot, key.low, key.high)
    low, high = max(key.low, begin), min(key.high, end)
    fewest = VIRTUAL_SLOTS if key.distribution is Distribution.SEQUENTIAL else 1
    if high - low + 1 < fewest:
        raise InvalidInput(
            f"sharding: partition {slot % sharding.partitions} has the keys {begin} to {end}, and {kind} uses the keys "
            f"{key.low} to {key.high}: expected {fewest} or more keys that are in both ranges, got {max(high - low + 1, 0)}; "
            "lower sharding.total_partitions, or correct sharding.key_range"
        )
    return replace(key, low=low, high=high)


def partition(sharding: Sharding, slot: int, low: int, high: int) -> tuple[int, int]:
    """Return the first and last key of the partition of the worker in ``slot``.

    The range in ``sharding`` is divided; if ``sharding`` has no range, the range from ``low`` to ``high`` is divided.
    """
    first = low if sharding.low is None else sharding.low
    count = (high if sharding.high is None else sharding.high) - first + 1
    index = slot % sharding.partitions
    return first + index * count // sharding.partitions, first + (index + 1) * count // sharding.partitions - 1
