"""Reads the settings of an engine from its table in engines.toml into the settings class of its kind."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import timedelta
from enum import Enum
from math import isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.plain import short_repr
from drumbeat.user_path import user_path

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 36_500 * 86_400.0
_EXPECTED, _TO_BE = ": expected ", " to be"  #: parts of the beginning of an error message, around the name of a setting
_SECRETS = re.compile(r"password|passwd|secret|token|api_?key|credential", re.IGNORECASE)


def read_fields(kind: type[Any], table: Mapping[str, Any], subject: str) -> dict[str, Any]:
    """Read a table into values for the fields of a settings class; missing fields are left out. Raises InvalidSettings.

    ``subject``: the beginning of every error message, such as ``engine gpu``."""
    hints = get_type_hints(kind)
    known = [each.name for each in fields(kind)]
    for name in table:
        if name not in known:
            raise InvalidSettings(_unknown(subject, name, known))
    return {name: _read(hints[name], value, f"{subject}{_EXPECTED}{name}{_TO_BE}") for name, value in table.items()}


def read_settings(kind: type[Any], table: Mapping[str, Any], subject: str, folder: Path = Path()) -> Any:
    """Read a table into a settings class. Raises InvalidSettings, also for a missing field.

    ``folder``: the folder of the settings file; relative paths in the table start there."""
    read = read_fields(kind, table, subject)
    values = {name: folder / value if isinstance(value, Path) else value for name, value in read.items()}
    try:
        return kind(**values)
    except TypeError as exc:
        missing = [each.name for each in fields(kind) if each.name not in values and _is_required(kind, each.name)]
        if not missing:
            raise
        hints = get_type_hints(kind)
        raise InvalidSettings(f"{subject}: expected {' and '.join(_must(name, hints) for name in missing)}, got none") from exc
    except InvalidSettings as exc:
        raise InvalidSettings(f"{subject}: {exc}") from exc


def _must(name: str, hints: Mapping[str, Any]) -> str:
    """Return the name of a required setting for an error message; for a list of tables, also the TOML heading of a table."""
    inside = get_args(hints[name])
    is_tables = get_origin(hints[name]) in (tuple, Sequence) and is_dataclass(inside[0])
    return f"{name} (at least one table [[engines.NAME.{name}]])" if is_tables else name


def _is_required(kind: type[Any], name: str) -> bool:
    from dataclasses import MISSING

    return any(each.name == name and each.default is MISSING and each.default_factory is MISSING for each in fields(kind))


def _unknown(subject: str, name: str, known: list[str]) -> str:
    if _SECRETS.search(name) and not name.endswith("_variable"):
        variables = [each for each in known if each.endswith("_variable")]
        hint = f"; name the environment variable that holds it: {', '.join(variables)}" if variables else ""
        return f"{subject} has no setting {name!r}: secrets do not belong in this file{hint}; known: {', '.join(known)}"
    return f"{subject} has no setting {name!r}; expected some of {', '.join(known)}"


def _read(hint: Any, value: Any, expected: str) -> Any:
    """Convert one value of a table to a field's type. ``expected``: the beginning of the error message."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _read_one_of([each for each in inside if each is not NoneType], value, expected)
    if origin is Literal:
        return _check(value in inside, value, value, f"{expected} {' or '.join(map(repr, inside))}")
    if origin in (tuple, Sequence):
        _check(isinstance(value, list), value, value, f"{expected} a list")
        return tuple(_read(inside[0], each, _item(expected, n)) for n, each in enumerate(value, 1))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        _check(isinstance(value, dict), value, value, f"{expected} a table")
        return {name: _read(inside[1], each, _entry(expected, name)) for name, each in value.items()}
    if is_dataclass(hint) and isinstance(hint, type):
        _check(isinstance(value, dict), value, value, f"{expected} a table")
        return read_settings(hint, value, expected.replace(_EXPECTED, ": ").removesuffix(_TO_BE))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _member(hint, value, expected)
    if hint in _PLAIN:
        return _PLAIN[hint](value, expected)
    raise TypeError(f"{expected} of a type that engines.toml can hold, got the type {hint}")


def _read_one_of(hints: Sequence[Any], value: Any, expected: str) -> Any:
    """Convert a value to the first of several types that accepts it. The types are for example a number and text."""
    for hint in hints[:-1]:
        with suppress(InvalidSettings):
            return _read(hint, value, expected)
    also = "".join(f" {_NAMES[hint]} or" for hint in hints[:-1])
    return _read(hints[-1], value, f"{expected}{also}")


def _item(expected: str, number: int) -> str:
    """Return the beginning of the error message for an item of a list, counted from 1."""
    subject, marker, rest = expected.rpartition(_EXPECTED)
    return f"{subject}{marker}item {number} of {rest}"


def _entry(expected: str, name: str) -> str:
    """Return the beginning of the error message for an entry of a table."""
    return f"{expected.removesuffix(_TO_BE)}.{name}{_TO_BE}"


def _check(is_valid: bool, value: Any, result: Any, expected: str) -> Any:
    if not is_valid:
        raise InvalidSettings(f"{expected}, got {short_repr(value)}")
    return result


def _member(kind: type[Enum], value: Any, expected: str) -> Enum:
    names = {str(each.value).lower(): each for each in kind}
    _check(isinstance(value, str) and value.lower() in names, value, value, f"{expected} one of {', '.join(names)}")
    return names[value.lower()]


def _text(value: Any, expected: str) -> str:
    return str(_check(isinstance(value, str), value, value, f"{expected} a text"))


def _path(value: Any, expected: str) -> Path:
    return user_path(_text(value, f"{expected} a path:"), f"{expected} a path")


def _whole(value: Any, expected: str) -> int:
    return int(_check(isinstance(value, int) and not isinstance(value, bool), value, value, f"{expected} a whole number"))


def _number(value: Any, expected: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return float(_check(is_number, value, value, f"{expected} a number"))


def _switch(value: Any, expected: str) -> bool:
    return bool(_check(isinstance(value, bool), value, value, f"{expected} true or false"))


def _duration(value: Any, expected: str) -> timedelta:
    """Convert a number of seconds, or a text such as 30s, 10m or 2h, to a duration."""
    expected = f"{expected} seconds, or a duration such as 30s, 10m or 2h"
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        _check(found is not None, value, value, expected)
        value = float(found[1]) * _UNITS[found[2]] if found else value
    seconds = _number(value, expected)
    return timedelta(seconds=_check(0 <= seconds <= _LONGEST, value, seconds, expected))


#: names of types in an error message that lists several types
_NAMES: Mapping[Any, str] = {int: "a whole number", float: "a number", bool: "true or false"}
_PLAIN: Mapping[Any, Callable[[Any, str], Any]] = {
    str: _text,
    Path: _path,
    int: _whole,
    float: _number,
    bool: _switch,
    timedelta: _duration,
}
