"""Field types of templates: durations, limits that can be switched off, and enums in any letter case."""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, Strict, WithJsonSchema

from drumbeat.bench.model import Queueing
from drumbeat.bench.model.warehouse import size_named
from drumbeat.core.errors import InvalidInput

_PARTS = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d)")
_WHOLE_TEXT = re.compile(r"\s*(?:\d+(?:\.\d+)?\s*(?:ms|s|min|m|h|d)\s*)+")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_NO_LIMIT = -1

YEAR, DAY = 31_536_000, 86_400  #: in seconds; the longest duration of a phase, and the longest timeout of an operation
MOST_HELD = 20_000  #: the most connections of one worker
MOST_IN_ALL = 64 * MOST_HELD  #: the most connections of a run: 64 workers, because keys are divided into 64 shares
MOST_WORKERS = 10_000  #: the most workers that a template may name; ``preflight`` checks how many can be started
MOST = 1_000_000_000  #: the highest value of all other numbers


def seconds(value: Any) -> Any:
    """Convert a text such as 30s, 5m or 1h30m to seconds; numbers stay as they are."""
    if not isinstance(value, str):
        return value
    if not _WHOLE_TEXT.fullmatch(value):
        raise ValueError("expected seconds as a number, or a duration such as 30s, 5m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in _PARTS.findall(value))


def none_if_unlimited(value: Any) -> Any:
    """Convert -1 to None, because both mean "no limit"."""
    return None if not isinstance(value, bool) and value == _NO_LIMIT else value


def shortest(value: float) -> float | int:
    """Convert a whole number to int, so that it is written as 30 and not as 30.0."""
    return int(value) if float(value).is_integer() else value


def one_of(members: type[StrEnum], **aliases: StrEnum) -> Callable[[Any], Any]:
    """Return a validator that accepts the values of an enum in any letter case, and the aliases."""
    names = {member.value.lower(): member for member in members} | aliases

    def found(value: Any) -> Any:
        return names.get(value.lower(), value) if isinstance(value, str) else value

    return found


def _size(name: str | None) -> str | None:
    """Return a warehouse size as Snowflake writes it."""
    try:
        return None if name is None else size_named(name)
    except InvalidInput as exc:
        raise ValueError(str(exc)) from exc


def queueing_of(value: Any) -> Any:
    """Convert a value to a mode of counting waiting sessions; false means OFF, because YAML reads a bare ``off`` as false."""
    return Queueing.OFF if value is False else one_of(Queueing)(value)


def _either(*schemas: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": list(schemas)})


_NULL, _OFF = {"type": "null"}, {"const": _NO_LIMIT}
_DURATION = {"type": "string", "pattern": r"^\s*(\d+(\.\d+)?\s*(ms|s|min|m|h|d)\s*)+$"}

Whole = Annotated[int, Strict()]
WarehouseSize = Annotated[str | None, AfterValidator(_size)]
Count = Annotated[int, Strict(), Field(ge=1, le=MOST)]
Connections = Annotated[int, Strict(), Field(ge=1, le=MOST_IN_ALL)]
_Held = Annotated[int, Strict(), Field(ge=1, le=MOST_HELD)]
_Workers = Annotated[int, Strict(), Field(ge=1, le=MOST_WORKERS)]
Number = Annotated[float, Strict(), PlainSerializer(shortest)]
Percent = Annotated[float, Strict(), Field(ge=0, le=100), PlainSerializer(shortest)]
Seconds = Annotated[
    float,
    BeforeValidator(seconds),
    Strict(),
    Field(ge=0, le=YEAR),
    PlainSerializer(shortest),
    _either({"type": "number", "minimum": 0, "maximum": YEAR}, _DURATION),
]
_Positive = Annotated[float, Strict(), Field(gt=0), PlainSerializer(shortest)]


def _up_to(most: int) -> WithJsonSchema:
    return _either({"type": "integer", "minimum": 1, "maximum": most}, _OFF, _NULL)


ConnectionLimit = Annotated[Connections | None, BeforeValidator(none_if_unlimited), _up_to(MOST_IN_ALL)]
HeldLimit = Annotated[_Held | None, BeforeValidator(none_if_unlimited), _up_to(MOST_HELD)]
WorkerLimit = Annotated[_Workers | None, BeforeValidator(none_if_unlimited), _up_to(MOST_WORKERS)]
Milliseconds = Annotated[
    _Positive | None, BeforeValidator(none_if_unlimited), _either({"type": "number", "exclusiveMinimum": 0}, _OFF, _NULL)
]
ErrorShare = Annotated[
    Percent | None, BeforeValidator(none_if_unlimited), _either({"type": "number", "minimum": 0, "maximum": 100}, _OFF, _NULL)
]
