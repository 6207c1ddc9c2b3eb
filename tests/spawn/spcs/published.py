"""Checks a service's specification against the fields that Snowflake has published."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import yaml

Check = Callable[[Any, str], None]

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_AMOUNT = re.compile(r"\d+(\.\d+)?(Ki|Mi|Gi|Ti|K|M|G|T)")
_CPU = re.compile(r"\d+(\.\d+)?|\d+m")


class SpecificationRefused(Exception):
    """The specification is not one that Snowflake takes."""


def read_specification(text: str) -> Mapping[str, Any]:
    """Read and check a specification. Raises SpecificationRefused."""
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError as exc:
        raise SpecificationRefused(f"not YAML: {exc}") from exc
    _table(read, "", {"spec": _spec, "serviceRoles": _any, "capabilities": _any}, {"spec"})
    found: Mapping[str, Any] = read["spec"]
    return found


def _spec(value: Any, at: str) -> None:
    fields: Mapping[str, Check] = {
        "containers": _list(_container),
        "endpoints": _any,
        "volumes": _any,
        "logExporters": lambda each, where: _table(each, where, {"eventTableConfig": _event_table}, {"eventTableConfig"}),
        "platformMonitor": _any,
    }
    _table(value, at, fields, {"containers"})
    if not 1 <= len(value["containers"]) <= 20:
        raise SpecificationRefused(f"{at}.containers: from 1 to 20")


def _event_table(value: Any, at: str) -> None:
    _table(value, at, {"logLevel": _one_of("INFO", "ERROR", "NONE")}, {"logLevel"})


def _container(value: Any, at: str) -> None:
    fields: Mapping[str, Check] = {
        "name": _matching(_NAME),
        "image": _text,
        "command": _list(_text),
        "args": _list(_text),
        "env": _variables,
        "readinessProbe": _any,
        "volumeMounts": _any,
        "resources": lambda each, where: _table(each, where, {"requests": _amounts, "limits": _amounts}),
        "secrets": _list(_secret),
    }
    _table(value, at, fields, {"name", "image"})
    if not value["image"].startswith("/"):
        raise SpecificationRefused(f"{at}.image: expected /db/schema/repository/image:tag")


def _secret(value: Any, at: str) -> None:
    fields: Mapping[str, Check] = {
        "snowflakeSecret": lambda each, where: _table(each, where, {"objectName": _text, "objectReference": _text}),
        "directoryPath": _text,
        "envVarName": _text,
        "secretKeyRef": _one_of("username", "password", "secret_string"),
    }
    _table(value, at, fields, {"snowflakeSecret"})
    if ("directoryPath" in value) == ("envVarName" in value) or ("secretKeyRef" in value) != ("envVarName" in value):
        raise SpecificationRefused(f"{at}: envVarName with secretKeyRef, or directoryPath")


def _amounts(value: Any, at: str) -> None:
    _table(value, at, {"memory": _matching(_AMOUNT), "cpu": _cpu, "nvidia.com/gpu": _whole})


def _variables(value: Any, at: str) -> None:
    if not isinstance(value, dict) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise SpecificationRefused(f"{at}: expected texts")


def _table(value: Any, at: str, fields: Mapping[str, Check], required: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    if not isinstance(value, dict):
        raise SpecificationRefused(f"{at or 'the specification'}: expected a table")
    for name, each in value.items():
        if name not in fields:
            raise SpecificationRefused(f"unknown option '{name}' for '{at or 'the specification'}'")
        fields[name](each, f"{at}.{name}".lstrip("."))
    if missing := required - {*value}:
        raise SpecificationRefused(f"{at}: missing {', '.join(sorted(missing))}")


def _list(check: Check) -> Check:
    def checked(value: Any, at: str) -> None:
        if not isinstance(value, list):
            raise SpecificationRefused(f"{at}: expected a list")
        for n, each in enumerate(value):
            check(each, f"{at}[{n}]")

    return checked


def _text(value: Any, at: str) -> None:
    if not isinstance(value, str):
        raise SpecificationRefused(f"{at}: expected a text, got {value!r}")


def _whole(value: Any, at: str) -> None:
    if not isinstance(value, int) or value < 1:
        raise SpecificationRefused(f"{at}: expected a number, got {value!r}")


def _cpu(value: Any, at: str) -> None:
    if not _CPU.fullmatch(str(value)):
        raise SpecificationRefused(f"{at}: expected cpu units, got {value!r}")


def _matching(pattern: re.Pattern[str]) -> Check:
    def checked(value: Any, at: str) -> None:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise SpecificationRefused(f"{at}: invalid value {value!r}")

    return checked


def _one_of(*allowed: str) -> Check:
    def checked(value: Any, at: str) -> None:
        if value not in allowed:
            raise SpecificationRefused(f"{at}: expected one of {', '.join(allowed)}, got {value!r}")

    return checked


def _any(value: Any, at: str) -> None:
    return
