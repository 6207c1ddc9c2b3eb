"""Checks of a policy's fields: smallest and largest values, and conversion from text."""

from collections.abc import Mapping
from datetime import timedelta
from math import isfinite
from typing import Any, Literal, overload

from drumbeat.core.errors import InvalidSettings

MOST_WORKERS = 100_000
LONGEST = timedelta(days=36_500)
_YES, _NO = frozenset({"true", "yes", "1"}), frozenset({"false", "no", "0"})
_MILLISECOND = timedelta(milliseconds=1)

#: Timeouts that must not be 0: every worker or job would exceed them at once.
NEVER_ZERO = (
    "heartbeat_timeout",
    "quiet_timeout",
    "spawning_timeout",
    "startup_grace",
    "installing_timeout",
    "stuck_timeout",
    "expected_service",
    "ready_not_claiming_timeout",
    "gpu_not_detected_timeout",
    "gpu_stale_timeout",
    "max_lifetime",
    "exempt_max_lifetime",
)
_LEAST: Mapping[str, float | timedelta] = {
    "tasks_per_worker": 1,
    "concurrency": 1,
    "every": timedelta(milliseconds=100),
    **dict.fromkeys(NEVER_ZERO, _MILLISECOND),
}
_MOST: Mapping[str, float] = {
    **dict.fromkeys(("workers", "min_workers", "max_workers", "keep_idle", "step_up", "step_down"), MOST_WORKERS),
    "failure_rate": 1,
    "storage_max_percent_used": 100,
}
_MOST_NUMBER = 1e9


def check_bounds(name: str, value: Any) -> None:
    """Raise InvalidSettings for a number or a time that is too small or too large for its field."""
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        return
    is_time = isinstance(value, timedelta)
    least, most = _LEAST.get(name, timedelta() if is_time else 0), LONGEST if is_time else _MOST.get(name, _MOST_NUMBER)
    if not value >= least:  # type: ignore[operator]
        raise InvalidSettings(f"expected {name} to be {_format(least)} or more, got {_format(value)}")
    if not value <= most:  # type: ignore[operator]
        raise InvalidSettings(f"expected {name} to be {_format(most)} or less, got {_format(value)}")


def _format(value: float | timedelta) -> str:
    return f"{value.total_seconds():g} s" if isinstance(value, timedelta) else f"{value:g}"


@overload
def number(name: str, value: Any, *, integer: Literal[True]) -> int: ...
@overload
def number(name: str, value: Any, *, integer: bool) -> int | float: ...
def number(name: str, value: Any, *, integer: bool) -> int | float:
    """Read a number from text or JSON. Raises ValueError if it is not a number, not finite or (with ``integer``) not whole;
    TypeError for a value that is neither text nor a number; OverflowError for an integer that is too large."""
    if isinstance(value, bool):
        raise ValueError(f"{name} must be a number, not {value!r}")
    result = float(value)
    if not isfinite(result) or (integer and result != int(result)):
        raise ValueError(f"{name} must be a {'whole' if integer else 'finite'} number, not {value!r}")
    return int(result) if integer else result


def yes_or_no(name: str, value: Any) -> bool:
    """Read true or false from text or JSON. Raises InvalidSettings."""
    word = str(value).strip().lower()
    if word not in _YES | _NO:
        raise InvalidSettings(f"expected {name} to be true or false, got {value!r}")
    return word in _YES


def text(name: str, value: Any) -> str:
    """Return text unchanged and a number as text. Raises InvalidSettings for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidSettings(f"expected {name} to be a text, got {value!r}")
    return str(value)
