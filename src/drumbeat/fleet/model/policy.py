"""A fleet's policy: every setting with its default, its JSON form, and its checks."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import timedelta
from enum import StrEnum
from typing import Any

from drumbeat.core.engine import DEFAULT_ENGINE, engine_names
from drumbeat.core.errors import InvalidSettings
from drumbeat.core.plain import short_repr
from drumbeat.core.pool import Thresholds
from drumbeat.fleet.model.bounds import check_bounds, number, text, yes_or_no
from drumbeat.fleet.model.schedule import Schedule, read_schedule


def _s(number: float) -> timedelta:
    return timedelta(seconds=number)


_MIN_GONE_AFTER = timedelta(minutes=10)
_DEFAULT_DAMPING = {"stabilisation": _s(60), "cooldown_down": _s(60), "turn_after": _s(45)}


class PolicyName(StrEnum):
    """How the number of workers is determined."""

    FIXED = "fixed"  #: always ``workers``; there is no queue
    QUEUE_RATIO = "queue_ratio"  #: one worker for every ``tasks_per_worker`` queued jobs
    QUEUE_COVER = "queue_cover"  #: an idle or starting worker for every queued job, and a warm buffer
    LAG_AWARE = "lag_aware"  #: as many workers as will be needed when a worker started now is ready


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPolicy:
    """How many workers a pool has, when a worker counts as faulty, and the most money that the workers can cost."""

    policy: PolicyName = PolicyName.FIXED  #: how the number of workers is determined (``fleet create``: ``lag_aware``)
    provider: str = DEFAULT_ENGINE  #: the engine that runs the workers, or several (``a,b``): the first one is preferred
    workers: int = 1  #: number of workers with the policy ``fixed``
    target: int = 1  #: load per worker, for example its number of connections
    ramp: timedelta = timedelta()  #: time over which a worker changes gradually to a new target

    every: timedelta = timedelta(seconds=30)  #: time between two beats
    min_workers: int = 2  #: minimum number of workers, even while nothing is queued
    max_workers: int = 10  #: maximum number of workers at once, including workers that drain or may still run
    tasks_per_worker: int = 3  #: queued jobs per worker with the policy ``queue_ratio``
    keep_idle: int = 0  #: warm buffer: idle workers kept besides the busy ones
    concurrency: int = 1  #: jobs one worker runs at once
    headroom: float = 1.0  #: the number of queued jobs is multiplied by this
    expected_service: timedelta | None = None  #: how long a job is expected to take; used until one has been measured
    wait_slo: timedelta | None = None  #: scale up when the oldest claimable job has waited longer than this
    schedules: tuple[Schedule, ...] = ()  #: minimum and maximum that apply at certain hours; can be set only in a file

    heartbeat_timeout: timedelta | None = None  #: a worker silent for longer is lost; None: the pool's ``lost_after``
    quiet_timeout: timedelta = timedelta(seconds=600)  #: ``heartbeat_timeout`` for workers without jobs while nothing is queued
    spawning_timeout: timedelta | None = None  #: time in which a new worker must join; None: the pool's ``start_within``
    startup_grace: timedelta = timedelta(seconds=1200)  #: time after joining in which a worker must be ready
    installing_timeout: timedelta = timedelta(seconds=1800)  #: ``startup_grace`` for a worker that reports to be installing
    graceful_shutdown_timeout: timedelta | None = None  #: time to drain; 0: stop at once; None: the pool's ``drain_within``
    stuck_timeout: timedelta | None = None  #: limit for jobs without a timeout; None: 300 s with ``queue_ratio``, else no limit
    ready_not_claiming_timeout: timedelta = timedelta(seconds=600)  #: a ready worker that claims no job for longer has failed
    gpu_not_detected_timeout: timedelta = timedelta(seconds=300)  #: time in which a ready worker must report GPU memory
    gpu_stale_timeout: timedelta = timedelta(seconds=120)  #: warn when a worker's GPU figures are older than this
    needs_gpu: bool = False  #: True: a worker that reports no GPU has failed; False: only a warning
    error_cleanup_grace: timedelta = timedelta(seconds=600)  #: warn when an ended worker's instance may still run after this
    max_lifetime: timedelta | None = None  #: workers older than this are drained and replaced
    exempt_max_lifetime: timedelta = timedelta(seconds=7200)  #: workers exempt from capacity are drained when older than this
    contract: str | None = None  #: version label of the workers; workers started with another label are drained and replaced
    max_task_failures: int = 3  #: failed jobs in a row after which a worker is replaced; 0: never
    task_failure_window: timedelta = timedelta(seconds=1800)  #: time within which failed jobs count for ``max_task_failures``

    idle_timeout: timedelta = timedelta(seconds=600)  #: how long a worker must be idle before it can be drained
    overcapacity_idle_timeout: timedelta = timedelta(seconds=30)  #: ``idle_timeout`` while there are more workers than allowed
    spawning_grace: timedelta = timedelta(seconds=180)  #: a starting worker is not drained as surplus before this age
    stabilisation: timedelta | None = None  #: keep the highest number of workers wanted in this time; None: as cooldown_down
    step_up: int | None = None  #: maximum number of workers started in one beat
    step_down: int | None = None  #: maximum number of workers drained in one beat
    cooldown_up: timedelta = timedelta()  #: minimum time between two scale-ups
    cooldown_down: timedelta | None = None  #: minimum time between scale-downs; None: 60 s with a ``queue_`` policy, else 0
    turn_after: timedelta | None = None  #: minimum time between scale-up and -down; None: 45 s with a ``queue_`` policy, else 0

    price_per_hour: float | None = None  #: price of one worker per hour; None: the provider's price
    billing_granule: timedelta | None = None  #: paid time is rounded up to a multiple of this; None: the provider's granule
    max_per_hour: float | None = None  #: money ceiling per clock hour (UTC), and for the hourly cost of all workers at once
    max_per_day: float | None = None  #: money ceiling per day (UTC)
    max_per_month: float | None = None  #: money ceiling per month (UTC)

    storage_check_interval_cycles: int = 10  #: beats between two checks of the workers' disks; 0: never
    storage_min_free_gb: float = 50  #: a volume with less free space than this is expanded
    storage_max_percent_used: float = 85  #: a volume that is at least this full is expanded too
    storage_expansion_increment_gb: int = 50  #: by how much a volume is expanded; 0: only warn
    storage_max_gb: int = 1000  #: maximum size to which a volume is expanded

    failure_rate: float = 0.8  #: share of failed workers at which the breaker opens
    failure_window: timedelta = timedelta(seconds=300)  #: time within which failed workers count for the breaker
    failure_min: int = 5  #: the breaker stays closed while fewer workers than this ended or became ready in the window
    breaker_rest: timedelta = timedelta(seconds=300)  #: time from opening the breaker until a trial worker is started
    backoff_first: timedelta = timedelta(seconds=40)  #: wait after the provider's second fault in a row; none after the first
    backoff_most: timedelta = timedelta(seconds=600)  #: maximum wait; the wait doubles with each fault

    def __post_init__(self) -> None:
        for each in fields(self):
            check_bounds(each.name, getattr(self, each.name))
        engine_names(self.provider)
        if self.min_workers > self.max_workers:
            raise InvalidSettings(
                f"expected min_workers ≤ max_workers, got min {self.min_workers} and max {self.max_workers}; set both"
            )
        most = max([self.max_workers, *(each.max_workers or 0 for each in self.schedules)])
        if any((each.min_workers or 0) > most for each in self.schedules):
            raise InvalidSettings(
                f"expected min_workers ≤ max_workers ({most}) in every schedule, got more; set both in the schedule"
            )

    @property
    def controller_gone_after(self) -> timedelta:
        """How long workers continue without a controller: long enough to restart a daemon, or for cron to miss a few beats."""
        return max(_MIN_GONE_AFTER, self.every * 5)

    @property
    def has_ceiling(self) -> bool:
        return any(most is not None for most in (self.max_per_hour, self.max_per_day, self.max_per_month))

    def damping(self, name: str) -> timedelta:
        """Return the value of ``stabilisation``, ``cooldown_down`` or ``turn_after``: as set, or this policy's default.

        The default is 0 for ``fixed``, which changes at once, and for ``lag_aware``, which learns how long to keep workers. For
        the other policies it is in ``_DEFAULT_DAMPING``.
        """
        value: timedelta | None = getattr(self, name)
        by_queue = self.policy in (PolicyName.QUEUE_RATIO, PolicyName.QUEUE_COVER)
        return value if value is not None else _DEFAULT_DAMPING[name] if by_queue else timedelta()

    def to_json(self) -> dict[str, Any]:
        """Return as JSON: workers, target, ramp, and the other fields that differ from their defaults. Times are in seconds."""
        always = {"workers", "target", "ramp"}
        listed = [each for each in fields(self) if each.name in always or getattr(self, each.name) != _default(each)]
        return {_json_name(each): _plain(getattr(self, each.name)) for each in listed}

    @classmethod
    def default_json(cls) -> dict[str, Any]:
        """Return every field with its default, as JSON."""
        return {_json_name(each): _plain(_default(each)) for each in fields(cls)}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "FleetPolicy":
        """Read the policy in a pool's row; unknown fields are ignored. Raises InvalidSettings.

        If only a maximum is given and it is below the default minimum, the minimum is lowered to it.
        """
        values = {each.name: _read(each, given[name]) for each in fields(cls) if (name := _json_name(each)) in given}
        most, least = values.get("max_workers"), cls.default_json()["min_workers"]
        return cls(**({"min_workers": most} if most is not None and 0 <= most < least else {}) | values)

    def limits(self, thresholds: Thresholds) -> Thresholds:
        """Return the time limits for workers: from this policy if it sets them, else from the pool. Limits that must be below
        ``lost_after`` are lowered if needed."""
        timeout = self.heartbeat_timeout
        lost = thresholds.lost_after if timeout is None else max(timeout, least_silence(thresholds))
        stale = min(thresholds.stale_after, lost / 2)
        start, drain = self.spawning_timeout, self.graceful_shutdown_timeout
        return Thresholds(
            heartbeat_every=min(thresholds.heartbeat_every, stale / 2),
            stale_after=stale,
            lost_after=lost,
            give_up_after=min(thresholds.give_up_after, lost * 0.8),
            start_within=thresholds.start_within if start is None else start,
            drain_within=thresholds.drain_within if drain is None else drain,
            controller_gone_after=thresholds.controller_gone_after,
        )


def least_silence(thresholds: Thresholds) -> timedelta:
    """Return the shortest silence after which a worker can count as lost, given how often workers send heartbeats."""
    return min(thresholds.lost_after, thresholds.give_up_after + thresholds.heartbeat_every)


def _is_time(each: Field[Any]) -> bool:
    return "timedelta" in str(each.type)


def _default(each: Field[Any]) -> Any:
    return None if each.default is MISSING else each.default


def _json_name(each: Field[Any]) -> str:
    """Return the field's name in a pool's row: times end in ``_seconds``."""
    return f"{each.name}_seconds" if _is_time(each) else each.name


def _plain(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Schedule):
        return {_json_name(each): _plain(getattr(value, each.name)) for each in fields(Schedule)}
    return value.value if isinstance(value, StrEnum) else value


def _read(each: Field[Any], value: Any) -> Any:
    kind = str(each.type)
    if value is None and "None" in kind:
        return None
    if each.type is bool:
        return yes_or_no(each.name, value)
    if "str" in kind:
        return text(each.name, value)
    try:
        return _READERS[each.name](value) if each.name in _READERS else _figure(each, value)
    except (TypeError, ValueError, OverflowError, KeyError, AttributeError) as exc:
        raise InvalidSettings(
            f"expected numbers (times in seconds) in a fleet's policy, got {each.name} {short_repr(value)}: {exc}"
        ) from exc


def _figure(each: Field[Any], value: Any) -> Any:
    if _is_time(each):
        return timedelta(seconds=number(each.name, value, integer=False))
    return number(each.name, value, integer="int" in str(each.type))


def _policy_name(value: Any) -> PolicyName:
    if value not in {each.value for each in PolicyName}:
        raise InvalidSettings(f"expected policy to be one of {', '.join(PolicyName)}; got {short_repr(value)}")
    return PolicyName(value)


def _schedules(value: Any) -> tuple[Schedule, ...]:
    return tuple(read_schedule(one) for one in value)


_READERS: Mapping[str, Callable[[Any], Any]] = {"schedules": _schedules, "policy": _policy_name}
