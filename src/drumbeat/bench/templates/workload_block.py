"""Converts a load to a ``workload`` block (the reverse of ``load_of``), so that a run's row shows what its workers do."""

from collections.abc import Mapping
from typing import Any

import msgspec
from pydantic import ValidationError

from drumbeat.bench.model import (
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
from drumbeat.bench.templates.blocks import WorkloadBlock
from drumbeat.core.errors import InvalidInput

_NAMES: Mapping[type[Any], str] = {
    KeyValue: "key",
    NewKey: "new_key",
    PoolValue: "pool",
    RandomNumber: "number",
    RandomText: "text",
    RandomUuid: "uuid",
    Now: "now",
    SameAs: "same_as",
}


def fits_workload_block(load: Load) -> bool:
    """Whether every value source of the load can be expressed in a ``workload`` block; some of TPC-C's cannot."""
    return all(type(value) in _NAMES for each in load.used for statement in each.statements for value in statement.values)


def workload_block(load: Load) -> WorkloadBlock:
    """Convert the load to a ``workload`` block, without operations of weight 0. Raises InvalidInput if that is not possible."""
    fields = {
        "name": load.name,
        "operations": [_operation(each) for each in load.used],
        "think_time_ms": load.think.total_seconds() * 1000,
    }
    try:
        return WorkloadBlock.model_validate(fields)
    except ValidationError as exc:
        problems = "; ".join(str(each["msg"]) for each in exc.errors(include_url=False))
        raise InvalidInput(f"workload: {load.name} has values that the run's JSON document cannot hold: {problems}") from exc


def _operation(operation: Operation) -> dict[str, Any]:
    fields = {"kind": str(operation.kind), "weight": operation.weight, "reads": operation.reads}
    if len(operation.statements) == 1:
        return {**fields, **_statement(operation.statements[0])}
    return {**fields, "statements": [_statement(each) for each in operation.statements]}


def _statement(statement: Statement) -> dict[str, Any]:
    return {"sql": statement.sql, "values": [_value(each) for each in statement.values]}


def _value(value: Value) -> dict[str, Any]:
    fields = msgspec.to_builtins(value)
    return {_NAMES[type(value)]: {name: each for name, each in fields.items() if each is not None}}
