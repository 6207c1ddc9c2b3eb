"""Settings of a worker of jobs: its handlers, how many jobs it runs at once, in which executor, and when it exits."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.core.plain import short_repr
from drumbeat.core.pool import PoolRow, Thresholds

MOST_CONCURRENCY = 10_000
EXPECTED_HANDLER = "expected module:function or command:PROGRAM ARGUMENT…, with TYPE= before it for one job type"


class Mode(StrEnum):
    """When a worker exits."""

    ONCE = "once"  #: after one job, or at once if there is no job
    DRAIN = "drain"  #: when no job is left to claim
    LOOP = "loop"  #: only when it is asked to stop


class ExecutorKind(StrEnum):
    """Where a worker runs its handlers."""

    ASYNC = "async"  #: coroutines on the worker's event loop, plain functions in threads
    THREADS = "threads"  #: everything in threads, so that a blocking handler does not delay the loop
    PROCESSES = "processes"  #: everything in child processes, so that even a busy handler does not delay heartbeats


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPlan:
    """Settings of a worker: its handlers, and how it claims and runs jobs. Stored in the policy of its pool.

    Raises InvalidInput that names the first invalid field.
    """

    handlers: Mapping[str, str] = field(default_factory=dict)  #: handlers by job type; '': for every other type
    mode: Mode = Mode.DRAIN
    executor: ExecutorKind = ExecutorKind.ASYNC
    concurrency: int = 1
    capabilities: tuple[str, ...] = ()
    lease: timedelta | None = None  #: how long a claim lasts unless renewed; None: twice the pool's heartbeat
    timeout: timedelta | None = None  #: time limit for jobs that have no timeout of their own
    max_jobs: int | None = None  #: exit after this many jobs, to be replaced by a new worker
    max_memory_mb: int | None = None  #: exit when the worker uses more memory
    prefetch: int | None = None  #: jobs to claim in advance; None: as many as the worker runs in 20 ms
    middleware: tuple[str, ...] = ()  #: hooks around each attempt, as module:object, after those of the settings
    gather: timedelta = timedelta(milliseconds=2)  #: how long to collect results before they are written together

    def __post_init__(self) -> None:
        for name in PLAN_FIELDS:
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                value = _check_least(name, _read(name, value, _FIELDS))
                object.__setattr__(self, name, value)  # the class is frozen

    @property
    def types(self) -> tuple[str, ...]:
        """The job types that the worker has handlers for; empty: every type."""
        return () if "" in self.handlers else tuple(self.handlers)

    def lease_for(self, thresholds: Thresholds) -> timedelta:
        return self.lease or thresholds.heartbeat_every * 2

    def to_json(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Return fields as JSON for a pool's policy: the fields in ``names``, or all fields that differ from the default."""
        default = WorkPlan()
        chosen = [name for name in PLAN_FIELDS if getattr(self, name) != getattr(default, name)] if names is None else names
        return {name: _json(getattr(self, name)) for name in chosen}


def plan_from_options(given: Mapping[str, Any]) -> WorkPlan:
    """Build the plan of a worker from options by name. Raises InvalidInput, which suggests the most similar option."""
    known = [name for name in PLAN_FIELDS if name != "handlers"]  # the caller gives the handler itself
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidInput(f"expected an option of a worker, one of {', '.join(known)}; got {name!r}{hint}")
    return WorkPlan(**given)


def _json(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    return dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value


def plan_of(pool: PoolRow) -> WorkPlan:
    """Read the work plan from a pool's policy; other fields of the policy are ignored. Raises InvalidInput."""
    try:
        return WorkPlan(**{name: _stored(name, value) for name, value in pool.policy.items() if name in _READERS})
    except InvalidInput as exc:
        raise InvalidInput(f"invalid policy of pool {pool.pool_id}: {exc}") from exc


def _stored(name: str, value: Any) -> Any:
    return None if value is None and name in _OPTIONAL else _read(name, value, _READERS)


def parse_handlers(given: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """Parse handlers given as ``SPEC`` (for every type) or ``TYPE=SPEC``. Returns them by type. Raises InvalidInput."""
    if isinstance(given, Mapping):
        return {kind: check_spec(spec) for kind, spec in given.items()}
    if isinstance(given, str):
        raise InvalidInput(f"expected handlers by type, such as {{'': 'module:function'}}, got {given!r}")
    found: dict[str, str] = {}
    for text in given:
        kind, spec = _split(text)
        if kind in found:
            raise InvalidInput(
                f"expected one handler for {f'type {kind!r}' if kind else 'all types'}, got two: {found[kind]!r} and {spec!r}"
            )
        found[kind] = check_spec(spec)
    return found


def check_spec(spec: Any) -> str:
    """Return the handler's name if it has the form ``module:function`` or ``command:PROGRAM``. Raises InvalidInput."""
    before, colon, after = spec.partition(":") if isinstance(spec, str) else ("", "", "")
    if not colon or not before.strip() or not after.strip():
        raise InvalidInput(f"{EXPECTED_HANDLER}; got {spec!r}")
    return str(spec)


def changed_handlers(current: Mapping[str, str], added: Mapping[str, str], removed: Iterable[str]) -> dict[str, str]:
    """Return a pool's handlers after adding some and removing some. Raises InvalidInput if a type to remove has no handler."""
    gone = tuple(removed)
    for kind in gone:
        if kind not in current:
            known = ", ".join(repr(each) for each in sorted(current)) or "none"
            raise InvalidInput(f"type {kind!r} has no handler to remove; types with a handler: {known}")
    return {kind: spec for kind, spec in current.items() if kind not in gone} | {**added}


def _split(text: str) -> tuple[str, str]:
    kind, equals, spec = text.partition("=")
    return (kind.strip(), spec) if equals and ":" not in kind else ("", text)


def _check_least(name: str, value: Any) -> Any:
    """Return a field's value. Raises InvalidInput if it is too small, or too large for the concurrency."""
    if isinstance(value, timedelta) and (value < timedelta() or (not value and name in _OPTIONAL)):
        limit = "above 0" if name in _OPTIONAL else "0 or more"
        raise InvalidInput(f"expected {name} to be {limit}, got {value.total_seconds():g} s")
    if name == "concurrency" and not 1 <= value <= MOST_CONCURRENCY:
        raise InvalidInput(f"expected {name} to be between 1 and {MOST_CONCURRENCY}, got {value}")
    least = 0 if name == "prefetch" else 1
    if isinstance(value, int) and value < least:
        raise InvalidInput(f"expected {name} to be {least} or more, got {value}")
    return value


def _read(name: str, value: Any, readers: Mapping[str, Callable[[Any], Any]]) -> Any:
    try:
        return readers[name](value)
    except (TypeError, ValueError, OverflowError) as exc:
        expected = _EXPECTED.get(name) or ("a number of seconds" if readers is _READERS else "a timedelta")
        raise InvalidInput(f"expected {name} to be {expected}, got {short_repr(value)}") from exc


def _seconds(value: Any) -> timedelta:
    return timedelta(seconds=value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or value != int(value):
        raise ValueError(value)
    return int(value)


def _duration(value: Any) -> timedelta:
    if not isinstance(value, timedelta):
        raise TypeError(value)
    return value


def _names(value: Any) -> tuple[str, ...]:
    names = () if isinstance(value, str) else tuple(value)
    if isinstance(value, str) or not all(isinstance(each, str) for each in names):
        raise ValueError(value)
    return names


def _handlers(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise ValueError(value)
    return parse_handlers(value)


#: How each field is read from the JSON of a pool's policy.
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
    "middleware": _names,
    "gather": _seconds,
}
PLAN_FIELDS = tuple(_READERS)
_FIELDS = {**_READERS, "lease": _duration, "timeout": _duration, "gather": _duration}  #: for values that are not read from JSON
_OPTIONAL = frozenset({"lease", "timeout", "max_jobs", "max_memory_mb", "prefetch"})
_EXPECTED = {
    "handlers": "an object of handlers by type",
    "mode": f"one of {', '.join(Mode)}",
    "executor": f"one of {', '.join(ExecutorKind)}",
    "capabilities": "a list of names",
    "middleware": "a list of module:object",
    "concurrency": "a whole number",
    "max_jobs": "a whole number",
    "max_memory_mb": "a whole number",
    "prefetch": "a whole number",
}
