"""Checks the arguments of a pool's methods: durations, numbers, names, times. Each error names the argument."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from math import isfinite
from typing import Any, TypeVar

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import JobStatus
from drumbeat.core.plain import short_repr
from drumbeat.core.worker import Holder
from drumbeat.pool.job_options import duration
from drumbeat.pool.worker.failures import shortened

T = TypeVar("T")

MOST_PRIORITY = 2**31 - 1
MOST_CLAIMED = 1_000_000  #: the largest number accepted as an argument


def check_duration(name: str, value: Any) -> timedelta:
    """Convert an argument (a timedelta, seconds or ISO 8601 text) to a duration. Raises InvalidInput."""
    return _read(name, "a timedelta or seconds, not negative and at most a hundred years", duration, value)


def check_count(name: str, value: Any) -> int:
    return _read(name, f"a whole number from 0 to {MOST_CLAIMED}", _whole, value)


def check_number(name: str, value: Any) -> int:
    return _read(name, "a whole number", _integer, value)


def check_priority(name: str, value: Any) -> int:
    return _read(name, f"a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}", _priority, value)


def check_progress(name: str, value: Any) -> float:
    """Check that an argument (a job's progress) is a number from 0 to 1. Raises InvalidInput."""
    return _read(name, "a number from 0 to 1", _share, value)


def check_text(name: str, value: Any) -> str:
    return _read(name, "text", _text, value)


def check_event(name: str, value: Any) -> str:
    """Check that an argument is the name of an event, which is not empty. Raises InvalidInput."""
    return _read(name, "the name of an event: text that is not empty", _some_text, value)


def checked_text(name: str, value: Any) -> str:
    """Check that an argument is text, and shorten it so that every store accepts it. Raises InvalidInput."""
    return shortened(check_text(name, value))


def names(name: str, value: Any) -> tuple[str, ...]:
    """Check an argument that is a list of names. Raises InvalidInput, also for one text: it would be read as letters."""
    return _read(name, f"a list of names, such as {name}=['gpu']", _names, value)


def check_time(name: str, value: Any) -> datetime:
    return _read(name, "a datetime with a time zone, such as datetime.now(UTC) + timedelta(hours=1)", _aware, value)


def job_filters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check the filters for a list of jobs, and leave out those that are None. Raises InvalidInput, which suggests the most
    similar filter name."""
    for name in given:
        if name not in _FILTERS:
            near = {"status": "statuses", "type": "job_type"}.get(name) or next(iter(get_close_matches(name, _FILTERS)), None)
            hint = f"; did you mean {near}?" if near else ""
            raise InvalidInput(f"expected a filter name, one of {', '.join(_FILTERS)}; got {name!r}{hint}")
    return {name: _FILTERS[name](name, value) for name, value in given.items() if value is not None}


def job_statuses(name: str, value: Any) -> tuple[JobStatus, ...]:
    """Check an argument that is a list of job statuses, given as JobStatus or text. Raises InvalidInput."""
    return _read(name, f"a list of {', '.join(JobStatus)}, such as {name}=['done']", _statuses, value)


def _read(name: str, expected: str, reader: Callable[[Any], T], value: Any) -> T:
    try:
        return reader(value)
    except (TypeError, ValueError, OverflowError) as exc:
        raise InvalidInput(f"{name}: expected {expected}, got {short_repr(value)}") from exc


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_CLAIMED:
        raise ValueError(value)
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _priority(value: Any) -> int:
    if abs(_integer(value)) > MOST_PRIORITY:
        raise ValueError(value)
    return int(value)


def _share(value: Any) -> float:
    if isinstance(value, bool | str) or not isfinite(value) or not 0 <= value <= 1:
        raise ValueError(value)
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return str.__str__(value)  # a store may refuse a subclass of str, such as Django's SafeString


def _some_text(value: Any) -> str:
    if not _text(value):
        raise ValueError(value)
    return str(value)


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise TypeError(value)
    return tuple(_text(each) for each in value)


def _aware(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise TypeError(value)
    return value


def _statuses(value: Any) -> tuple[JobStatus, ...]:
    return tuple(JobStatus(each) for each in _names(value))


def _holder(name: str, value: Any) -> Holder:
    if not isinstance(value, Holder):
        raise InvalidInput(f"{name}: expected a Holder, got {short_repr(value)}")
    return value


_FILTERS: Mapping[str, Callable[[str, Any], Any]] = {
    "statuses": job_statuses,
    "job_type": check_text,
    "group": check_text,
    "worker_id": check_text,
    "holder": _holder,
    "after": check_text,
    "limit": check_count,
}
