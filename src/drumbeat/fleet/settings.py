"""Read a fleet's policy from a file and from environment variables, including those of the earlier RunPod orchestrator.

The file (``fleet.yml``) names the fields of a policy; times are numbers of seconds, or texts such as ``90s`` and ``10m``.
Environment variables override the file and the pool's stored policy; settings given in the command override both.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from drumbeat.core.errors import InvalidInput, InvalidSettings, MissingExtra
from drumbeat.core.plain import short_repr
from drumbeat.core.pool import PRESETS, PoolKind, Thresholds
from drumbeat.fleet.model import FleetPolicy, PolicyName

DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MAX_NAMED = 20  #: maximum number of unknown fields named in one error
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*$")
_CLOCK = re.compile(r"^([+-]?)(\d{1,2}):(\d{2})$")
_TIMES = frozenset(each.name for each in fields(FleetPolicy) if "timedelta" in str(each.type))
_NAMES = frozenset(each.name for each in fields(FleetPolicy))
_BOUNDS = frozenset({"min_workers", "max_workers"})
ALIASES = {"engine": "provider"}  #: other names of fields in files and in --set
PRESET = "preset"  #: the key in a file that selects a set of pool thresholds; not a field of the policy
_HALF_AN_HOUR = timedelta(minutes=30)
_PRESETS: Mapping[str, Callable[[timedelta], Thresholds]] = {
    "jobs": lambda absence: replace(PRESETS[PoolKind.JOBS], controller_gone_after=absence),
    "gpu": lambda absence: replace(PRESETS[PoolKind.FLEET], controller_gone_after=max(_HALF_AN_HOUR, absence)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One environment variable: the policy field it sets, its default and, if it is a duration, its unit in seconds."""

    name: str
    field: str
    default: float | str
    unit: float | None = None


def _variable(name: str, field: str, default: float | str, unit: float | None = None) -> Variable:
    return Variable(name=name, field=field, default=default, unit=unit)


#: Environment variables of the earlier RunPod orchestrator.
LEGACY: tuple[Variable, ...] = (
    _variable("ORCHESTRATOR_POLL_SEC", "every", 30, 1),
    _variable("MIN_ACTIVE_GPUS", "min_workers", 2),
    _variable("MAX_ACTIVE_GPUS", "max_workers", 10),
    _variable("TASKS_PER_GPU_THRESHOLD", "tasks_per_worker", 3),
    _variable("GPU_IDLE_TIMEOUT_SEC", "heartbeat_timeout", 300, 1),
    _variable("TASK_STUCK_TIMEOUT_SEC", "stuck_timeout", 300, 1),
    _variable("SPAWNING_TIMEOUT_SEC", "spawning_timeout", 300, 1),
    _variable("GRACEFUL_SHUTDOWN_TIMEOUT_SEC", "graceful_shutdown_timeout", 600, 1),
    _variable("GPU_HEALTH_CHECK_TIMEOUT_SEC", "gpu_stale_timeout", 120, 1),
)

#: Environment variables of the RunPod orchestrator's successor that still apply, and Drumbeat's own.
SUCCESSOR: tuple[Variable, ...] = (
    _variable("HEARTBEAT_TIMEOUT_SEC", "heartbeat_timeout", 300, 1),
    _variable("IDLE_TIMEOUT_SEC", "idle_timeout", 600, 1),
    _variable("MACHINES_TO_KEEP_IDLE", "keep_idle", 0),
    _variable("SCALE_UP_MULTIPLIER", "headroom", 1.0),
    _variable("MIN_SCALING_INTERVAL_SEC", "turn_after", 45, 1),
    _variable("SPAWNING_GRACE_PERIOD_SEC", "spawning_grace", 180, 1),
    _variable("SCALE_DOWN_GRACE_PERIOD_SEC", "cooldown_down", 60, 1),
    _variable("SCRIPT_RUNNING_TIMEOUT_SEC", "installing_timeout", 1800, 1),
    _variable("GPU_OVERCAPACITY_IDLE_TIMEOUT_SEC", "overcapacity_idle_timeout", 30, 1),
    _variable("EXCLUDED_WORKER_MAX_LIFETIME_SEC", "exempt_max_lifetime", 7200, 1),
    _variable("STARTUP_GRACE_PERIOD_SEC", "startup_grace", 1200, 1),
    _variable("READY_NOT_CLAIMING_TIMEOUT_SEC", "ready_not_claiming_timeout", 600, 1),
    _variable("GPU_NOT_DETECTED_TIMEOUT_SEC", "gpu_not_detected_timeout", 300, 1),
    _variable("MAX_WORKER_FAILURE_RATE", "failure_rate", 0.8),
    _variable("FAILURE_WINDOW_MINUTES", "failure_window", 5, 60),
    _variable("MIN_WORKERS_FOR_RATE_CHECK", "failure_min", 5),
    _variable("MAX_CONSECUTIVE_TASK_FAILURES", "max_task_failures", 3),
    _variable("TASK_FAILURE_WINDOW_MINUTES", "task_failure_window", 30, 60),
    _variable("ERROR_CLEANUP_GRACE_PERIOD_SEC", "error_cleanup_grace", 600, 1),
    _variable("STORAGE_CHECK_INTERVAL_CYCLES", "storage_check_interval_cycles", 10),
    _variable("STORAGE_MIN_FREE_GB", "storage_min_free_gb", 50),
    _variable("STORAGE_MAX_PERCENT_USED", "storage_max_percent_used", 85),
    _variable("STORAGE_EXPANSION_INCREMENT_GB", "storage_expansion_increment_gb", 50),
    _variable("STORAGE_MAX_GB", "storage_max_gb", 1000),
    _variable("API_WORKER_CONCURRENCY", "concurrency", 1),
    _variable("REIGH_WORKER_CONTRACT_VERSION", "contract", ""),
    _variable("DRUMBEAT_PROVIDER", "provider", ""),
)

VARIABLES: tuple[Variable, ...] = (*LEGACY, *SUCCESSOR)


def legacy_policy(policy: str = "queue_ratio") -> FleetPolicy:
    """Return the policy of the earlier RunPod orchestrator, with its defaults."""
    return read_policy({**_legacy_defaults(), "policy": policy})


def _legacy_defaults() -> dict[str, Any]:
    """Return the earlier RunPod orchestrator's defaults, except for min_workers and max_workers, which FleetPolicy sets."""
    return {each.field: _value(each, str(each.default)) for each in LEGACY if each.field not in _BOUNDS}


def load_policy(environment: Mapping[str, str], file: Path | None = None, /, **given: Any) -> FleetPolicy:
    """Build a policy from a file, environment variables and settings; later ones take precedence. Raises InvalidSettings.

    ``queue_ratio`` starts from the defaults of the earlier RunPod orchestrator.
    """
    chosen = {name: value for name, value in _read_file(file).items() if name != PRESET}
    chosen |= from_environment(environment) | given
    chosen.setdefault("policy", PolicyName.LAG_AWARE)
    defaults = _legacy_defaults() if chosen["policy"] == PolicyName.QUEUE_RATIO else {}
    return read_policy(defaults | chosen)


def chosen_fields(environment: Mapping[str, str], file: Path | None, settings: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the policy's fields that a file, environment variables or settings set. Raises InvalidSettings."""
    chosen = {**_read_file(file), **from_environment(environment), **settings}
    return frozenset(ALIASES.get(name, name) for name in chosen)


def changed_policy(stored: Mapping[str, Any], settings: Mapping[str, Any]) -> FleetPolicy:
    """Return a stored policy with some fields changed. If its type becomes ``queue_ratio``, it also gets that type's defaults.

    Raises InvalidSettings.
    """
    given, before = _json(settings), stored.get("policy", PolicyName.FIXED)
    becomes_legacy = given.get("policy", before) == PolicyName.QUEUE_RATIO != before
    return FleetPolicy.from_json({**(_json(_legacy_defaults()) if becomes_legacy else {}), **stored, **given})


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a policy that environment variables set. Raises InvalidSettings."""
    return {each.field: _value(each, environment[each.name]) for each in VARIABLES if environment.get(each.name)}


def load_thresholds(
    policy: FleetPolicy,
    file: Path | None = None,
    preset: str | None = None,
    *,
    is_new: bool = True,
    is_rented: bool | None = None,
) -> Thresholds | None:
    """Return the time limits of a preset: ``preset``, else the one that the file names, else ``gpu`` for a new fleet on rented
    machines. None if no preset applies.

    ``is_rented``: whether the policy's engine rents machines. If None, only the engine ``runpod`` counts as renting machines.

    Raises InvalidSettings.
    """
    rents = policy.provider == "runpod" if is_rented is None else is_rented
    name = preset or _read_file(file).get(PRESET) or ("gpu" if is_new and rents else None)
    if name is None:
        return None
    if not isinstance(name, str) or name not in _PRESETS:
        raise InvalidSettings(f"expected preset to be {' or '.join(_PRESETS)}, got {short_repr(name)}")
    return _PRESETS[name](policy.controller_gone_after)


def with_settings(policy: FleetPolicy, settings: Mapping[str, Any]) -> FleetPolicy:
    """Return a policy with some fields changed, each written as in a file (``--set max_workers=6``)."""
    return FleetPolicy.from_json(policy.to_json() | _json(settings))


def read_policy(settings: Mapping[str, Any]) -> FleetPolicy:
    """Build a policy from fields written as in a file. Raises InvalidSettings, also for an unknown field."""
    return FleetPolicy.from_json(_json(settings))


def _json(settings: Mapping[str, Any]) -> dict[str, Any]:
    settings = {ALIASES.get(name, name): value for name, value in settings.items()}
    unknown = sorted(settings.keys() - _NAMES)
    if unknown:
        raise InvalidSettings("; ".join(map(_unknown_field, unknown[:_MAX_NAMED])))
    return dict(_field(name, value) for name, value in settings.items())


def _unknown_field(name: str) -> str:
    """Return the error for an unknown field, with the most similar known field or environment variable."""
    by_variable = {each.name.lower(): each.field for each in VARIABLES}
    plain = name.lower().replace("-", "_").strip("_")
    near = get_close_matches(plain, sorted({*_NAMES, *by_variable}), n=1)
    if not near:
        return f"a fleet's policy has no field {name}; expected some of {', '.join(sorted(_NAMES))}"
    return f"a fleet's policy has no field {name}; did you mean {by_variable.get(near[0], near[0])}?"


def _field(name: str, value: Any) -> tuple[str, Any]:
    if name == "schedules":
        if value is not None and not isinstance(value, list):
            raise InvalidSettings(f"expected a list of schedules, or none, got {short_repr(value)}")
        return name, [_schedule(each) for each in value or ()]
    if name not in _TIMES:
        return name, value
    return f"{name}_seconds", None if value is None else _seconds(name, value)


def _seconds(name: str, value: Any) -> float:
    found = None if isinstance(value, bool) else _DURATION.match(str(value))
    if found is None:
        raise InvalidSettings(
            f"expected {name} to be a number of seconds, or a duration such as 90s, 10m or 2h, got {short_repr(value)}"
        )
    return float(found[1]) * _UNITS[found[2] or "s"]


def _value(variable: Variable, text: str) -> Any:
    """Convert an environment variable's text to the value of its policy field. Raises InvalidSettings."""
    if variable.default == "":
        return text
    try:
        number = float(text)
    except ValueError as exc:
        raise InvalidSettings(f"expected a number in the environment variable {variable.name}, got {short_repr(text)}") from exc
    return number if variable.unit is None else number * variable.unit


def _schedule(given: Any) -> dict[str, Any]:
    """Convert a schedule from a file's form, ``{from: "08:00", to: "18:00", days: [mon, fri], utc_offset: …, …}``, to the JSON
    form of a stored policy. Raises InvalidSettings."""
    if not isinstance(given, dict) or not {"from", "to"} <= given.keys() <= _SCHEDULE:
        raise InvalidSettings(
            f"expected a schedule with from and to, and only the fields {sorted(_SCHEDULE)}; got {short_repr(given)}"
        )
    days = given.get("days") or ()
    if not isinstance(days, list | tuple):
        raise InvalidSettings(f"expected days like [mon, fri] in a schedule, got {short_repr(days)}")
    return {
        "begin": _minutes(given["from"]),
        "end": _minutes(given["to"]),
        "days": [_day(each) for each in days],
        "utc_offset_seconds": _minutes(given.get("utc_offset", "00:00"), signed=True) * 60,
        "min_workers": given.get("min_workers"),
        "max_workers": given.get("max_workers"),
    }


_SCHEDULE = frozenset({"from", "to", "days", "utc_offset", "min_workers", "max_workers"})


def _minutes(text: Any, *, signed: bool = False) -> int:
    found = _CLOCK.match(str(text))
    if found is None or int(found[3]) > 59 or int(found[2]) * 60 + int(found[3]) > 1440 or (found[1] and not signed):
        raise InvalidSettings(f'expected a time like "08:00" (in quotes: YAML reads 8:00 as a number), got {short_repr(text)}')
    minutes = int(found[2]) * 60 + int(found[3])
    return -minutes if found[1] == "-" else minutes


def _day(text: Any) -> int:
    word = str(text).lower()
    found = [n for n, name in enumerate(DAYS) if len(word) >= 3 and name.startswith(word)]
    if not found:
        raise InvalidSettings(f"expected days like {', '.join(name[:3] for name in DAYS)}, got {short_repr(text)}")
    return found[0]


def _read_file(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        from drumbeat.yaml_text import read_yaml
    except ModuleNotFoundError as exc:
        raise MissingExtra("fleet.yml", "bench") from exc
    try:
        found = read_yaml(file.read_text(encoding="utf-8"), "YAML")
    except OSError as exc:
        raise InvalidSettings(f"cannot read the fleet's policy from {file}: {exc.strerror}") from exc
    except (InvalidInput, UnicodeDecodeError) as exc:
        raise InvalidSettings(f"{file}: {exc}") from exc
    if not isinstance(found, dict):
        raise InvalidSettings(f"expected the fields of a policy in {file}, got {short_repr(found)}")
    return {str(name): value for name, value in found.items()}
