"""What the values of a policy's fields may be: how small, how large, and which are known by name."""

from collections.abc import Mapping
from datetime import timedelta
from math import isfinite
from typing import Any, Literal, overload

from drumbeat.core.errors import InvalidSettings

PROVIDERS = ("local", "runpod")  #: where workers can run
MOST_WORKERS = 100_000
LONGEST = timedelta(days=36_500)
_YES, _NO = frozenset({"true", "yes", "1"}), frozenset({"false", "no", "0"})
_INSTANT = timedelta(milliseconds=1)

#: Times that would mean, at 0, that every worker or job is ill from its first moment on.
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
    **dict.fromkeys(NEVER_ZERO, _INSTANT),
}
_MOST: Mapping[str, float] = {
    **dict.fromkeys(("workers", "min_workers", "max_workers", "keep_idle", "step_up", "step_down"), MOST_WORKERS),
    "failure_rate": 1,
    "storage_max_percent_used": 100,
}
_COUNTLESS = 1e9


def check_bounds(name: str, value: Any) -> None:
    """Raise InvalidSettings for a number or a time that its field cannot have."""
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        return
    is_time = isinstance(value, timedelta)
    least, most = _LEAST.get(name, timedelta() if is_time else 0), LONGEST if is_time else _MOST.get(name, _COUNTLESS)
    if not value >= least:  # type: ignore[operator]
        raise InvalidSettings(f"expected {name} to be {_spelt(least)} or more, got {_spelt(value)}")
    if not value <= most:  # type: ignore[operator]
        raise InvalidSettings(f"expected {name} to be {_spelt(most)} at the most, got {_spelt(value)}")


def _spelt(value: float | timedelta) -> str:
    return f"{value.total_seconds():g} s" if isinstance(value, timedelta) else f"{value:g}"


def check_provider_name(name: str) -> None:
    """Raise InvalidSettings for a provider there is not."""
    if name not in PROVIDERS:
        raise InvalidSettings(f"expected the provider {' or '.join(PROVIDERS)}, got {name!r}")


@overload
def number(name: str, value: Any, *, whole: Literal[True]) -> int: ...
@overload
def number(name: str, value: Any, *, whole: bool) -> int | float: ...
def number(name: str, value: Any, *, whole: bool) -> int | float:
    """A number as it was typed or written. Raises ValueError, TypeError, OverflowError."""
    if isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}")
    found = float(value)
    if not isfinite(found) or (whole and found != int(found)):
        raise ValueError(f"{name} is {value!r}")
    return int(found) if whole else found


def yes_or_no(name: str, value: Any) -> bool:
    """True or false as it was typed or written. Raises InvalidSettings."""
    word = str(value).strip().lower()
    if word not in _YES | _NO:
        raise InvalidSettings(f"expected {name} to be true or false, got {value!r}")
    return word in _YES


def words(name: str, value: Any) -> str:
    """A text as it was typed, or a number that stands for one. Raises InvalidSettings."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidSettings(f"expected {name} to be a text, got {value!r}")
    return str(value)
