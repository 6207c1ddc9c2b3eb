"""How a worker runs jobs: its handlers, how many jobs at once, in which executor, and when it leaves."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.core.pool import PoolRow, Thresholds

MOST_CONCURRENCY = 10_000
EXPECTED_HANDLER = "expected module:function or command:PROGRAM ARGUMENT…, with TYPE= before it for one job type"


class Mode(StrEnum):
    """When a worker leaves."""

    ONCE = "once"  #: after one job, or at once when there is none
    DRAIN = "drain"  #: when nothing is left to claim
    LOOP = "loop"  #: only when told to stop


class ExecutorKind(StrEnum):
    """Where handlers run."""

    ASYNC = "async"  #: coroutines on the worker's event loop, plain functions in threads
    THREADS = "threads"  #: everything in threads, so that a blocking handler does not delay the loop
    PROCESSES = "processes"  #: everything in child processes, so that even a busy handler does not delay heartbeats


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    """How a worker runs jobs."""

    handlers: Mapping[str, str] = field(default_factory=dict)  #: handlers by job type; '': for every other type
    mode: Mode = Mode.DRAIN
    executor: ExecutorKind = ExecutorKind.ASYNC
    concurrency: int = 1
    capabilities: tuple[str, ...] = ()
    lease: timedelta | None = None  #: how long a claim lasts unless renewed; None: twice the pool's heartbeat
    timeout: timedelta | None = None  #: for jobs without their own
    max_jobs: int | None = None  #: leave after this many jobs, to be replaced
    max_memory_mb: int | None = None  #: leave when the worker uses more memory
    prefetch: int | None = None  #: jobs to hold beyond those that run; None: as many as run in 20 ms
    gather: timedelta = timedelta(milliseconds=2)  #: how long a result waits to be written together with others

    def __post_init__(self) -> None:
        _at_least("concurrency", self.concurrency, 1, MOST_CONCURRENCY)
        for name in ("max_jobs", "max_memory_mb"):
            if getattr(self, name) is not None:
                _at_least(name, getattr(self, name), 1)
        for name in ("lease", "timeout"):
            value = getattr(self, name)
            if value is not None and value <= timedelta():
                raise InvalidInput(f"expected {name} to be above 0, got {value.total_seconds():g} s")

    @property
    def types(self) -> tuple[str, ...]:
        """The only job types it has handlers for; empty: every type."""
        return () if "" in self.handlers else tuple(self.handlers)

    def lease_for(self, thresholds: Thresholds) -> timedelta:
        return self.lease or thresholds.heartbeat_every * 2

    def to_json(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """JSON for a pool's policy: the named fields, or all that differ from the default."""
        default = WorkPlan()
        chosen = [name for name in PLAN_FIELDS if getattr(self, name) != getattr(default, name)] if names is None else names
        return {name: _json(getattr(self, name)) for name in chosen}


def _json(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value


def plan_of(pool: PoolRow) -> WorkPlan:
    """The work plan in a pool's policy; other fields of the policy are ignored. Raises InvalidInput."""
    try:
        return WorkPlan(**{name: _read(name, value) for name, value in pool.policy.items() if name in _READERS})
    except InvalidInput as exc:
        raise InvalidInput(f"pool {pool.pool_id}, policy: {exc}") from exc


def parse_handlers(given: Mapping[str, str] | list[str] | tuple[str, ...]) -> dict[str, str]:
    """Handlers by type, from ``SPEC`` and ``TYPE=SPEC``. Raises InvalidInput."""
    if isinstance(given, Mapping):
        return {kind: check_spec(spec) for kind, spec in given.items()}
    found: dict[str, str] = {}
    for text in given:
        kind, spec = _split(text)
        if kind in found:
            raise InvalidInput(
                f"expected one handler for {f'type {kind!r}' if kind else 'all types'}, got two: {found[kind]!r} and {spec!r}"
            )
        found[kind] = check_spec(spec)
    return found


def check_spec(spec: str) -> str:
    """The handler's name, if its form is valid. Raises InvalidInput."""
    before, colon, after = spec.partition(":")
    if not colon or not before.strip() or not after.strip():
        raise InvalidInput(f"{EXPECTED_HANDLER}; got {spec!r}")
    return spec


def changed_handlers(current: Mapping[str, str], added: Mapping[str, str], removed: Iterable[str]) -> dict[str, str]:
    """A pool's handlers with some added and some removed. Raises InvalidInput for a removed type that has none."""
    for kind in removed:
        if kind not in current:
            known = ", ".join(repr(each) for each in sorted(current)) or "none"
            raise InvalidInput(f"expected to remove the handler of a type that has one ({known}), got {kind!r}")
    return {kind: spec for kind, spec in current.items() if kind not in set(removed)} | {**added}


def _split(text: str) -> tuple[str, str]:
    kind, equals, spec = text.partition("=")
    return (kind.strip(), spec) if equals and ":" not in kind else ("", text)


def _at_least(name: str, value: int, least: int, most: int | None = None) -> None:
    if value < least or (most is not None and value > most):
        limits = f"between {least} and {most}" if most else f"{least} or more"
        raise InvalidInput(f"expected {name} to be {limits}, got {value}")


def _read(name: str, value: Any) -> Any:
    try:
        return _READERS[name](value)
    except (TypeError, ValueError, OverflowError) as exc:
        raise InvalidInput(f"expected {name} to be {_EXPECTED.get(name, 'a number of seconds')}, got {value!r}") from exc


def _seconds(value: Any) -> timedelta:
    return timedelta(seconds=value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or value != int(value):
        raise ValueError(value)
    return int(value)


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(each, str) for each in value):
        raise ValueError(value)
    return tuple(value)


def _handlers(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        raise ValueError(value)
    return parse_handlers(value)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "handlers": _handlers,
    "mode": Mode,
    "executor": ExecutorKind,
    "concurrency": _whole,
    "capabilities": _names,
    "lease": _seconds,
    "timeout": _seconds,
    "max_jobs": _whole,
    "max_memory_mb": _whole,
    "prefetch": _whole,
    "gather": _seconds,
}
PLAN_FIELDS = tuple(_READERS)
_EXPECTED = {
    "handlers": "an object of handlers by type",
    "mode": f"one of {', '.join(Mode)}",
    "executor": f"one of {', '.join(ExecutorKind)}",
    "capabilities": "a list of names",
    "concurrency": "a whole number",
    "max_jobs": "a whole number",
    "max_memory_mb": "a whole number",
    "prefetch": "a whole number",
}
