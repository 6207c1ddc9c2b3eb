"""Reads the heartbeat interval, the pool and the backends from a state machine's ``data.settings``."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.pool import Thresholds

_SCHEMES: Mapping[str, tuple[str, ...]] = {
    "memory": ("memory:",),
    "sqlite": ("sqlite:",),
    "redis": ("redis:", "rediss:"),
    "postgresql": ("postgresql:", "postgres:"),
    "postgres": ("postgresql:", "postgres:"),
}
_OURS = ("registration", "work", "registration_path", "work_path", "sqlite_path")
_THEIRS = ("persistence", "locking", "results", "signal", "trigger", "trigger_path", "aws")  #: read by FlatMachines itself
_DEFAULT_FILE = "workers.sqlite"  #: default file name, as in FlatMachines


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineSettings:
    """The settings of a state machine that Drumbeat uses. A store URL of None means the store of this process."""

    heartbeat_interval: timedelta | None = None
    worker_pool: str | None = None
    registration: str | None = None
    work: str | None = None


def read_settings(settings: Mapping[str, Any], folder: Path, default: str) -> MachineSettings:
    """Read a machine's settings. Paths are relative to its folder. Raises InvalidSettings with the name of the field."""
    backends = settings.get("backends") or {}
    if not isinstance(backends, Mapping):
        raise InvalidSettings(f"expected data.settings.backends to be a mapping, got {backends!r}")
    for name in backends:
        if name not in (*_OURS, *_THEIRS):
            raise InvalidSettings(f"expected data.settings.backends to have only {', '.join(_OURS)}, got {name!r}")
    pool = settings.get("worker_pool")
    return MachineSettings(
        heartbeat_interval=_interval(settings.get("heartbeat_interval")),
        worker_pool=None if pool is None else str(pool),
        registration=_url(backends, "registration", folder, default),
        work=_url(backends, "work", folder, default),
    )


def thresholds_for(every: timedelta) -> Thresholds:
    """Return thresholds for a heartbeat interval: a worker is stale after two intervals and lost after four."""
    return Thresholds(
        heartbeat_every=every,
        stale_after=every * 2,
        lost_after=every * 4,
        give_up_after=every * 3.5,
        start_within=max(every * 4, timedelta(seconds=120)),
        drain_within=timedelta(seconds=600),
        controller_gone_after=timedelta(seconds=120),
    )


def _interval(given: Any) -> timedelta | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < 86_400:
        raise InvalidSettings(f"expected data.settings.heartbeat_interval to be seconds (above 0, below a day), got {given!r}")
    return timedelta(seconds=given)


def _url(backends: Mapping[str, Any], role: str, folder: Path, default: str) -> str | None:
    kind = backends.get(role)
    path = backends.get(f"{role}_path") or (backends.get("sqlite_path") if kind == "sqlite" else None)
    if kind is None:
        return None
    if kind not in _SCHEMES:
        raise InvalidSettings(f"expected data.settings.backends.{role} to be one of {', '.join(_SCHEMES)}, got {kind!r}")
    if kind == "memory":
        return "memory:"
    if path is None and default.startswith(_SCHEMES[kind]):
        return None
    if kind == "sqlite" and "://" not in str(path):
        return f"sqlite:///{folder / (path or _DEFAULT_FILE)}"
    if path is None or not str(path).startswith(_SCHEMES[kind]):
        raise InvalidSettings(
            f"data.settings.backends.{role} is {kind}: expected a URL ({_SCHEMES[kind][0]}//…) in {role}_path "
            f"or in DRUMBEAT_STORE, got {'neither' if path is None else 'an address of another kind of store'}"
        )
    return str(path)
