"""Converts payloads and results to plain JSON of limited size, and JSON back to typed values."""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from enum import Enum
from typing import Any
from uuid import UUID

from drumbeat.core.errors import InvalidInput
from drumbeat.core.plain import DEEPEST, brackets, check_depth, short_repr, too_deep

MOST_BYTES = 1024 * 1024
_FEW_FIELDS = 16
_INT64 = 2**63


def as_json(value: Any, what: str = "payload", most: int = MOST_BYTES) -> Any:
    """Convert a value to plain JSON. Raises InvalidInput that names the field that is not JSON or too big."""
    if 0 < _max_bytes(value) <= most:
        return value
    try:
        written = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        value = _plain(value, what, 0)
        written = json.dumps(value, ensure_ascii=False)
    if brackets(written) > DEEPEST:
        check_depth(value, what)
    if not written.isascii():
        _check_text(value, what, written)
    if len(written) > most // 4 and (size := len(written.encode("utf-8", "surrogatepass"))) > most:
        raise InvalidInput(_too_big(value, what, size, most))
    return value if _can_be_stored(value) else json.loads(written)


def _can_be_stored(value: Any) -> bool:
    """Whether the stores' encoder takes a value as it is. ``json.dumps`` also takes subclasses of str, int and float, such as
    numpy.float64 and Django's SafeString, and keys that are None or booleans."""
    import msgspec

    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _check_text(value: Any, what: str, written: str) -> None:
    """Raise InvalidInput that names the field whose text has half of a surrogate pair, which UTF-8 cannot encode."""
    try:
        written.encode()
    except UnicodeEncodeError:
        path, text = next(_broken_texts(value, what), (what, value))
        raise InvalidInput(
            f"expected {path} to be text that UTF-8 can encode, got {short_repr(text)}, which has half of a surrogate pair"
        ) from None


def _broken_texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield each text, also a key, that UTF-8 cannot encode, with its path."""
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            yield path, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _broken_texts(key, f"the keys of {path}")
            yield from _broken_texts(each, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for n, each in enumerate(value):
            yield from _broken_texts(each, f"{path}[{n}]")


def _max_bytes(value: Any, deeper: bool = True) -> int:
    """Return an upper bound for a value's size as JSON, without encoding it; 0 if unknown, such as for large or nested values
    and for text that is not ASCII.

    ``deeper``: estimate a small dict of simple values, too.
    """
    kind = type(value)
    if kind is str:
        return 6 * len(value) + 2 if value.isascii() else 0
    if kind is int:
        return 20 if -_INT64 <= value < _INT64 else 0
    if kind is float:
        return 25 if math.isfinite(value) else 0
    if value is None or kind is bool:
        return 5
    if kind is not dict or not deeper or len(value) > _FEW_FIELDS:
        return 0
    parts = [_max_bytes(each, deeper=False) if type(name) is str and name.isascii() else 0 for name, each in value.items()]
    return 0 if 0 in parts else 2 + sum(parts) + sum(6 * len(name) + 6 for name in value)


def build(kind: Any, payload: Any) -> Any:
    """Build a pydantic model or dataclass from plain JSON. Raises InvalidInput that names the invalid field."""
    if kind is None:
        return payload
    if hasattr(kind, "model_validate"):
        return _build_model(kind, payload)
    import msgspec

    try:
        return msgspec.convert(payload, kind)
    except msgspec.ValidationError as exc:
        raise InvalidInput(f"payload is not a valid {kind.__name__}: {exc}") from exc


def is_typed(kind: Any) -> bool:
    """Whether payloads are converted to this type, that is, it is a dataclass or a pydantic model."""
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "model_validate"))


def _build_model(kind: Any, payload: Any) -> Any:
    try:
        return kind.model_validate_json(json.dumps(payload), **names_and_aliases())
    except ValueError as exc:
        errors = getattr(exc, "errors", None)
        problems = [_problem(each) for each in errors(include_url=False)] if errors else [str(exc)]
        raise InvalidInput(f"payload is not a valid {kind.__name__}: {'; '.join(problems)}") from exc


def names_and_aliases() -> dict[str, Any]:
    """Return the arguments that make pydantic accept the fields of a model both by name (as they are pushed) and by alias.
    Empty for pydantic before 2.11, which has no such arguments: the model's own setting decides."""
    from pydantic import VERSION

    is_old = tuple(map(int, VERSION.split(".")[:2])) < (2, 11)
    return {} if is_old else {"by_alias": True, "by_name": True}


def _problem(error: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in error.get("loc", ())) or "$"
    return f"{where}: {error.get('msg')}, got {short_repr(error.get('input'), 80)}"


def _plain(value: Any, path: str, depth: int) -> Any:
    """Convert a value and everything in it to plain JSON. Raises InvalidInput for the first part that cannot be converted."""
    if depth > DEEPEST:
        raise too_deep(path.partition(".")[0].partition("[")[0])
    if value is None or isinstance(value, bool | int | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(f"expected {path} to be JSON, got {value}; JSON has no such number")
        return value
    if isinstance(value, Mapping):
        return {_key(key, path): _plain(each, f"{path}.{key}", depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, f"{path}[{n}]", depth + 1) for n, each in enumerate(value)]
    return _plain(_dumped(value, path), path, depth + 1)


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise InvalidInput(f"expected the keys of {path} to be text, got {short_repr(key)}")
    return key


def _dumped(value: Any, path: str) -> Any:
    if hasattr(value, "model_dump") and not isinstance(value, type):
        _refuse_secrets(value.model_dump(), path)
        return value.model_dump(mode="json", round_trip=True)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    raise InvalidInput(f"expected {path} to be JSON, got {type(value).__name__}; use text, numbers, lists and objects")


def _refuse_secrets(value: Any, path: str) -> None:
    """Raise InvalidInput for a secret of a pydantic model, of which JSON would have asterisks only."""
    if hasattr(value, "get_secret_value"):
        raise InvalidInput(
            f"expected {path} to be JSON, got {type(value).__name__}, which is not stored in clear; push the secret's name, "
            "and let the handler read it"
        )
    if isinstance(value, Mapping):
        for name, each in value.items():
            _refuse_secrets(each, f"{path}.{name}")
    elif isinstance(value, list | tuple | set | frozenset):
        for n, each in enumerate(value):
            _refuse_secrets(each, f"{path}[{n}]")


def _too_big(value: Any, what: str, size: int, most: int) -> str:
    biggest = what
    if isinstance(value, Mapping) and value:
        name = max(value, key=lambda key: len(json.dumps(value[key])))
        biggest = f"{what}.{name}"
    return (
        f"expected {what} to be at most {most} bytes of JSON, got {size}; "
        f"the biggest part is {biggest}: store it elsewhere and push its location"
    )
