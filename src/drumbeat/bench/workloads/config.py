"""Builds a load from the ``workload`` block of a run's configuration and checks its fields."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from drumbeat.bench.model import READS, Load, Operation, Statement
from drumbeat.bench.workloads.standard import standard
from drumbeat.bench.workloads.value_sources import check_names, value_of
from drumbeat.core.errors import InvalidInput
from drumbeat.core.plain import short_repr

_STATEMENT = ("sql", "values")
_OPERATION = ("kind", "weight", *_STATEMENT, "statements", "reads")


def load_of(config: Mapping[str, Any]) -> Load:
    """Build the load of a ``workload`` block: a standard workload by name and scale, or a list of operations.

    Raises InvalidInput; its message names the invalid field.
    """
    if "standard" in config:
        load = standard(str(config["standard"]), float(config.get("scale", 1))).load
        return replace(load, think=timedelta(milliseconds=float(config.get("think_time_ms") or 0)))
    operations = config.get("operations")
    if not isinstance(operations, Sequence) or not operations:
        raise InvalidInput("workload: expected a 'standard' name or a list of 'operations', got neither")
    return Load(
        name=str(config.get("name", "custom")),
        operations=tuple(_operation(number, each) for number, each in enumerate(operations)),
        think=timedelta(milliseconds=float(config.get("think_time_ms", 0))),
    )


def _operation(number: int, fields: Any) -> Operation:
    where = f"workload.operations[{number}]"
    if not isinstance(fields, Mapping) or "kind" not in fields or "weight" not in fields:
        raise InvalidInput(f"{where}: expected an object with 'kind', 'weight' and 'sql', got {short_repr(fields)}")
    kind = str(fields["kind"])
    check_names(f"{where} ({kind})", fields, _OPERATION)
    statements = _statements(f"{where} ({kind})", fields)
    return Operation(
        kind=kind,
        weight=_whole(f"{where}.weight", fields["weight"]),
        statements=statements,
        reads=bool(fields.get("reads", kind in READS)),
    )


def _statements(where: str, fields: Mapping[str, Any]) -> tuple[Statement, ...]:
    """Return the single statement of an operation, or the statements of its transaction."""
    several = fields.get("statements")
    if not several:
        return (_statement(where, fields, _OPERATION),) if fields.get("sql") else ()
    if fields.get("sql") is not None or fields.get("values") is not None:
        raise InvalidInput(f"{where}: expected 'sql' with its 'values', or 'statements', got both; keep one of them")
    return tuple(_statement(f"{where}.statements[{n}]", each, _STATEMENT) for n, each in enumerate(several))


def _statement(where: str, fields: Any, known: tuple[str, ...]) -> Statement:
    if not isinstance(fields, Mapping) or not isinstance(fields.get("sql"), str):
        raise InvalidInput(f"{where}: expected 'sql' as text, got {short_repr(fields)}")
    check_names(where, fields, known)
    values = tuple(value_of(f"{where}.values[{n}]", each) for n, each in enumerate(fields.get("values") or ()))
    return Statement(sql=fields["sql"], values=values)


def _whole(where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{where}: expected a whole number, got {short_repr(value)}")
    return value
