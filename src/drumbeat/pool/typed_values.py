"""Converts JSON back to the types that a function's annotations name: dataclasses, pydantic models, times, enums, tuples."""

import dataclasses
import json
import typing
from collections.abc import Callable, Mapping, MutableMapping
from datetime import date, datetime, time
from enum import Enum
from typing import Any
from uuid import UUID

from drumbeat.core.errors import InvalidInput
from drumbeat.pool.payload import names_and_aliases

Convert = Callable[[Any], Any]
_STORED_AS_TEXT = (date, datetime, time, UUID, Enum)


def converter(name: str, hint: Any) -> Convert | None:
    """Return a function that converts JSON to the type ``hint``; None if the type needs no conversion, such as ``list[str]``.

    The function raises InvalidInput with ``name``, the parameter's name, if a value does not fit the type.
    """
    kinds = list(_kinds(hint, set()))
    if not any(_is_converted(kind) for kind in kinds) and not _has_other_keys(hint):
        return None
    convert = _with_pydantic(hint) if any(_is_model(kind) for kind in kinds) else _without_models(hint)

    def checked(value: Any) -> Any:
        try:
            return convert(value)
        except ValueError as exc:
            raise InvalidInput(f"{name} is not a valid {_label(hint)}: {' '.join(str(exc).split())}") from exc

    return checked


def _kinds(hint: Any, seen: set[Any]) -> typing.Iterator[Any]:
    """Yield a type and all types in it: for ``list[Paper] | None`` list, Paper and NoneType. ``seen``: types whose fields were
    yielded."""
    kind = typing.get_origin(hint) or hint
    yield kind
    inner: list[Any] = list(typing.get_args(hint))
    if hasattr(hint, "__supertype__"):
        inner.append(hint.__supertype__)
    elif isinstance(kind, type) and kind not in seen and (dataclasses.is_dataclass(kind) or _is_typed_dict(kind)):
        seen.add(kind)
        inner += _hints_of(kind)
    for part in inner:
        yield from _kinds(part, seen)


def _is_typed_dict(kind: type) -> bool:
    return issubclass(kind, dict) and hasattr(kind, "__total__")


def _hints_of(kind: type) -> list[Any]:
    """Return the types of a dataclass's or TypedDict's fields; empty if an annotation cannot be resolved."""
    try:
        return [*typing.get_type_hints(kind).values()]
    except (NameError, TypeError):
        return []


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
    """Return a function that validates a value as JSON, in which even strict models take times as text.

    Fields may have their own names, as a pushed model is written, or their aliases, as people write JSON."""
    from pydantic import TypeAdapter

    adapter: TypeAdapter[Any] = TypeAdapter(hint)
    return lambda value: adapter.validate_json(json.dumps(value), **names_and_aliases())


def _without_models(hint: Any) -> Convert:
    """Return a function that converts to a type without pydantic models: with msgspec or, where it does not know a type, with
    pydantic if that is installed. A type that neither knows is left as JSON."""
    import msgspec

    if hint is date:
        return _date
    try:
        msgspec.json.Decoder(hint)
    except TypeError:
        try:
            return _with_pydantic(hint)
        except (ImportError, TypeError, RuntimeError):  # pydantic's errors about types are RuntimeErrors
            return lambda value: value
    return lambda value: msgspec.convert(value, hint, str_keys=True)


def _date(text: Any) -> date:
    """Convert text to a date; text with a time to a datetime, which is a date too and was pushed as one."""
    import msgspec

    kind = datetime if isinstance(text, str) and "T" in text else date
    return msgspec.convert(text, kind)


def _label(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
