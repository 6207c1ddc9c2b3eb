"""What a caller gives a pool's desk beside jobs: durations, names, moments, read and checked. Each refusal names the field."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, TypeVar

from drumbeat.core.errors import InvalidInput
from drumbeat.pool.failures import shortened
from drumbeat.pool.pushing import duration

T = TypeVar("T")

MOST_CLAIMED = 1_000_000  #: with one claim


def time_span(name: str, value: Any) -> timedelta:
    """A timedelta, seconds, or text as JSON has it."""
    return _read(name, "a timedelta or seconds, not negative and a hundred years at the most", duration, value)


def how_many(name: str, value: Any) -> int:
    return _read(name, f"a whole number from 0 to {MOST_CLAIMED}", _whole, value)


def how_far(name: str, value: Any) -> float:
    """How far something is."""
    return _read(name, "a number from 0 to 1", _share, value)


def words(name: str, value: Any) -> str:
    return _read(name, "text", _text, value)


def told(name: str, value: Any) -> str:
    """What people shall read, as any store takes it."""
    return shortened(words(name, value))


def names(name: str, value: Any) -> tuple[str, ...]:
    """A sequence of names. One name alone would be taken for its letters."""
    return _read(name, f"a list of names, such as {name}=['gpu']", _names, value)


def moment(name: str, value: Any) -> datetime:
    return _read(name, "a datetime with a time zone, such as datetime.now(UTC) + timedelta(hours=1)", _aware, value)


def _read(name: str, expected: str, reader: Callable[[Any], T], value: Any) -> T:
    try:
        return reader(value)
    except (TypeError, ValueError, OverflowError) as exc:
        raise InvalidInput(f"{name}: expected {expected}, got {value!r:.80}") from exc


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_CLAIMED:
        raise ValueError(value)
    return value


def _share(value: Any) -> float:
    if isinstance(value, bool | str) or not isfinite(value) or not 0 <= value <= 1:
        raise ValueError(value)
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(value)
    return tuple(_text(each) for each in value)


def _aware(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise TypeError(value)
    return value
