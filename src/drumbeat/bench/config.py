"""A load from plain data: what a run's configuration, a file or an API call says, checked and named where it is wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec

from drumbeat.bench.model import (
    READS,
    KeyValue,
    Load,
    NewKey,
    Now,
    Operation,
    PoolValue,
    RandomNumber,
    RandomText,
    RandomUuid,
    SameAs,
    Statement,
    Value,
)
from drumbeat.bench.standard import standard
from drumbeat.core.errors import InvalidInput
from drumbeat.core.plain import shown

_VALUES: Mapping[str, type[Any]] = {
    "key": KeyValue,
    "new_key": NewKey,
    "pool": PoolValue,
    "number": RandomNumber,
    "text": RandomText,
    "uuid": RandomUuid,
    "now": Now,
    "same_as": SameAs,
}


def load_of(config: Mapping[str, Any]) -> Load:
    """The load a ``workload`` block asks for: a standard one by name and scale, or operations of its own.

    Raises InvalidInput naming the field.
    """
    if "standard" in config:
        load = standard(str(config["standard"]), float(config.get("scale", 1))).load
        return replace(load, think=timedelta(milliseconds=float(config.get("think_time_ms") or 0)))
    operations = config.get("operations")
    if not isinstance(operations, Sequence) or not operations:
        raise InvalidInput("workload: expected a 'standard' name or a list of 'operations'")
    return Load(
        name=str(config.get("name", "custom")),
        operations=tuple(_operation(number, each) for number, each in enumerate(operations)),
        think=timedelta(milliseconds=float(config.get("think_time_ms", 0))),
    )


def _operation(number: int, fields: Any) -> Operation:
    where = f"workload.operations[{number}]"
    if not isinstance(fields, Mapping) or "kind" not in fields or "weight" not in fields:
        raise InvalidInput(f"{where}: expected an object with 'kind', 'weight' and 'sql', got {shown(fields)}")
    kind = str(fields["kind"])
    statements = fields.get("statements") or ([fields] if fields.get("sql") else [])
    return Operation(
        kind=kind,
        weight=_whole(f"{where}.weight", fields["weight"]),
        statements=tuple(_statement(f"{where} ({kind})", each) for each in statements),
        reads=bool(fields.get("reads", kind in READS)),
    )


def _statement(where: str, fields: Any) -> Statement:
    if not isinstance(fields, Mapping) or not isinstance(fields.get("sql"), str):
        raise InvalidInput(f"{where}: expected 'sql' as text, got {shown(fields)}")
    values = tuple(_value(f"{where}.values[{n}]", each) for n, each in enumerate(fields.get("values", ())))
    return Statement(sql=fields["sql"], values=values)


def _value(where: str, fields: Any) -> Value:
    if not isinstance(fields, Mapping) or len(fields) != 1:
        raise InvalidInput(f"{where}: expected one of {', '.join(_VALUES)} with its settings, got {shown(fields)}")
    ((name, settings),) = fields.items()
    if name not in _VALUES:
        raise InvalidInput(f"{where}: expected one of {', '.join(_VALUES)}, got {shown(name)}")
    try:
        value: Value = msgspec.convert(settings or {}, _VALUES[name])
    except (msgspec.ValidationError, InvalidInput) as exc:
        raise InvalidInput(f"{where}.{name}: {exc}") from exc
    return value


def _whole(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{where}: expected a whole number, got {shown(value)}")
    return value
