"""Converts JSON back to the types that a function's annotations name: dataclasses, pydantic models, times, enums, tuples."""

import dataclasses
import typing
from collections.abc import Callable, Mapping, MutableMapping
from datetime import date, datetime, time
from enum import Enum
from typing import Any
from uuid import UUID

from drumbeat.core.errors import InvalidInput

Convert = Callable[[Any], Any]
_STORED_AS_TEXT = (date, datetime, time, UUID, Enum)


def converter(name: str, hint: Any) -> Convert | None:
    """Return a function that converts JSON to the type ``hint``; None if the type needs no conversion, such as ``list[str]``.

    The function raises InvalidInput with ``name``, the parameter's name, if a value does not fit the type.
    """
    kinds = list(_kinds(hint))
    if not any(_is_converted(kind) for kind in kinds) and not _has_other_keys(hint):
        return None
    convert = _with_pydantic(hint) if any(_is_model(kind) for kind in kinds) else _with_msgspec(hint)

    def checked(value: Any) -> Any:
        try:
            return convert(value)
        except ValueError as exc:
            raise InvalidInput(f"{name} is not a valid {_label(hint)}: {' '.join(str(exc).split())}") from exc

    return checked


def _kinds(hint: Any) -> typing.Iterator[Any]:
    """Yield a type and all types in it: for ``list[Paper] | None`` list, Paper and NoneType."""
    parts = typing.get_args(hint)
    yield typing.get_origin(hint) or hint
    for part in parts:
        yield from _kinds(part)


def _is_converted(kind: Any) -> bool:
    if not isinstance(kind, type):
        return False
    return issubclass(kind, (tuple, *_STORED_AS_TEXT)) or dataclasses.is_dataclass(kind) or _is_model(kind)


def _has_other_keys(hint: Any) -> bool:
    """Whether a type has a dict in it with keys that are not text, such as ``dict[int, str]``: JSON has only text as keys."""
    parts = typing.get_args(hint)
    is_dict = typing.get_origin(hint) in (dict, Mapping, MutableMapping) and len(parts) == 2
    return (is_dict and parts[0] not in (str, Any)) or any(map(_has_other_keys, parts))


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_validate")


def _with_pydantic(hint: Any) -> Convert:
    from pydantic import TypeAdapter

    adapter: TypeAdapter[Any] = TypeAdapter(hint)
    return adapter.validate_python


def _with_msgspec(hint: Any) -> Convert:
    import msgspec

    def convert(value: Any) -> Any:
        try:
            return msgspec.convert(value, hint, str_keys=True)
        except TypeError:  # the hint also names a type that msgspec does not know: the function gets plain JSON
            return value

    return convert


def _label(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
