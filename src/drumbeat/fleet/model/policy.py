"""How a fleet shall be kept: every setting with its usual value, its JSON, and what is refused."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import timedelta
from enum import StrEnum
from math import isfinite
from typing import Any

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.pool import Thresholds


def _s(number: float) -> timedelta:
    return timedelta(seconds=number)


_USUAL_CALM = {"stabilisation": _s(60), "cooldown_down": _s(60), "turn_after": _s(45)}


class PolicyName(StrEnum):
    """How the number of workers is found."""

    FIXED = "fixed"  #: always ``workers``; there is no queue
    QUEUE_RATIO = "queue_ratio"  #: one worker for so many queued jobs (seed 004, C70-C72)
    QUEUE_COVER = "queue_cover"  #: every queued job covered by an idle or starting worker, and a warm buffer (seed 003, C51)
    LAG_AWARE = "lag_aware"  #: what will be needed once a worker asked for now is ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Other bounds at certain hours. Over midnight it belongs to the day on which it begins."""

    begin: int  #: minutes after midnight
    end: int  #: minutes after midnight; equal to ``begin``: the whole day
    days: tuple[int, ...] = ()  #: 0 is Monday; none named: every day
    utc_offset: timedelta = timedelta()
    min_workers: int | None = None
    max_workers: int | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.begin < 1440 and 0 <= self.end <= 1440 and all(0 <= day <= 6 for day in self.days)):
            raise InvalidSettings(f"expected minutes 0 to 1440 and days 0 to 6 in a schedule, got {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPolicy:
    """How many workers a pool shall have, how ill one may be, how much they may cost."""

    policy: PolicyName = PolicyName.FIXED
    provider: str = "local"  #: where its workers run: local, or runpod
    workers: int = 1  #: of the policy ``fixed``
    target: int = 1  #: connections, or whatever its workload counts, per worker
    ramp: timedelta = timedelta()

    every: timedelta = timedelta(seconds=30)  #: between two beats
    min_workers: int = 2
    max_workers: int = 10
    tasks_per_worker: int = 3  #: queued jobs one worker is worth to ``queue_ratio``
    keep_idle: int = 0  #: warm buffer beyond the busy ones
    concurrency: int = 1  #: jobs one worker holds at once
    headroom: float = 1.0  #: factor on the queued work
    wait_slo: timedelta | None = None  #: scale up when the oldest ready job has waited longer
    schedules: tuple[Schedule, ...] = ()

    heartbeat_timeout: timedelta | None = None  #: None: the pool's ``lost_after``
    quiet_timeout: timedelta = timedelta(seconds=600)  #: the same for a worker that holds nothing while nothing is queued
    spawning_timeout: timedelta | None = None  #: None: the pool's ``start_within``
    startup_grace: timedelta = timedelta(seconds=1200)  #: from joining to ready
    installing_timeout: timedelta = timedelta(seconds=1800)  #: the same for one that says it is installing
    graceful_shutdown_timeout: timedelta | None = None  #: None: the pool's ``drain_within``
    stuck_timeout: timedelta = timedelta(seconds=300)  #: of jobs that have no timeout of their own
    ready_not_claiming_timeout: timedelta = timedelta(seconds=600)
    gpu_not_detected_timeout: timedelta = timedelta(seconds=300)
    gpu_stale_timeout: timedelta = timedelta(seconds=120)
    needs_gpu: bool = False  #: a worker that shows no GPU has failed; else it is a warning
    error_cleanup_grace: timedelta = timedelta(seconds=600)  #: an ended worker whose instance is not gone by then is warned of
    max_lifetime: timedelta | None = None  #: drained when older
    exempt_max_lifetime: timedelta = timedelta(seconds=7200)  #: the same for workers exempt from capacity
    contract: str | None = None  #: workers made under another contract are drained and replaced
    max_task_failures: int = 3  #: failed jobs in a row after which a worker is replaced; 0: never
    task_failure_window: timedelta = timedelta(seconds=1800)

    idle_timeout: timedelta = timedelta(seconds=600)  #: from idle start
    overcapacity_idle_timeout: timedelta = timedelta(seconds=30)  #: the same while there are more than wanted
    spawning_grace: timedelta = timedelta(seconds=180)  #: a starting worker is not given up as surplus before
    stabilisation: timedelta | None = None  #: scaling down goes no lower than the highest wish of this window; None: usual
    step_up: int | None = None  #: workers spawned in one beat at most
    step_down: int | None = None
    cooldown_up: timedelta = timedelta()  #: between two scalings up
    cooldown_down: timedelta | None = None  #: between two scalings down; None: usual
    turn_after: timedelta | None = None  #: between scalings of opposite directions; None: usual

    price_per_hour: float | None = None  #: None: the provider's
    billing_granule: timedelta | None = None  #: None: the provider's
    max_per_hour: float | None = None  #: money in any clock hour, day, month; also what may run at once in an hour
    max_per_day: float | None = None
    max_per_month: float | None = None

    storage_check_interval_cycles: int = 10  #: beats between two looks at the disks that workers tell of; 0: never
    storage_min_free_gb: float = 50  #: a volume with less than this free is expanded
    storage_max_percent_used: float = 85  #: one that is so full, too
    storage_expansion_increment_gb: int = 50  #: by so much; 0: a warning only
    storage_max_gb: int = 1000  #: no volume is expanded beyond, whatever is written to it

    failure_rate: float = 0.8  #: share of worker faults at which the breaker opens
    failure_window: timedelta = timedelta(seconds=300)
    failure_min: int = 5  #: ended workers below which no rate is taken
    breaker_rest: timedelta = timedelta(seconds=300)  #: from opening to the trial
    backoff_first: timedelta = timedelta(seconds=40)  #: after the second provider fault in a row; the first is forgiven
    backoff_most: timedelta = timedelta(seconds=600)

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            least = _s(0) if isinstance(value, timedelta) else 0
            if isinstance(value, int | float | timedelta) and not value >= least:  # type: ignore[operator]
                raise InvalidSettings(f"expected {each.name} to be 0 or more, got {value}")
        for name in ("tasks_per_worker", "concurrency"):
            if getattr(self, name) < 1:
                raise InvalidSettings(f"expected {name} to be 1 or more, got {getattr(self, name)}")
        if self.min_workers > self.max_workers:
            raise InvalidSettings(f"expected min_workers ≤ max_workers, got {self.min_workers} and {self.max_workers}")

    def calm(self, name: str) -> timedelta:
        """A damper (stabilisation, cooldown_down, turn_after): as told, or as usual with this policy.

        ``fixed`` follows at once what it is told, ``lag_aware`` weighs each worker's keep itself.
        """
        told: timedelta | None = getattr(self, name)
        by_queue = self.policy in (PolicyName.QUEUE_RATIO, PolicyName.QUEUE_COVER)
        return told if told is not None else _USUAL_CALM[name] if by_queue else timedelta()

    def to_json(self) -> dict[str, Any]:
        """What differs from the usual, and always what a fixed fleet is: plain JSON, times in seconds."""
        always = {"workers", "target", "ramp"}
        kept = [each for each in fields(self) if each.name in always or getattr(self, each.name) != _usual(each)]
        return {_json_name(each): _plain(getattr(self, each.name)) for each in kept}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "FleetPolicy":
        """The policy a pool's row holds; what it does not know is passed over. Raises InvalidSettings."""
        try:
            return cls(**{each.name: _read(each, given[name]) for each in fields(cls) if (name := _json_name(each)) in given})
        except (TypeError, ValueError, OverflowError, KeyError) as exc:
            raise InvalidSettings(f"expected numbers (times in seconds) in a fleet's policy, got {dict(given)}: {exc}") from exc

    def limits(self, thresholds: Thresholds) -> Thresholds:
        """The pool's thresholds with this policy's own over them, still in order."""
        lost = self.heartbeat_timeout or thresholds.lost_after
        stale = min(thresholds.stale_after, lost / 2)
        return Thresholds(
            heartbeat_every=min(thresholds.heartbeat_every, stale / 2),
            stale_after=stale,
            lost_after=lost,
            give_up_after=min(thresholds.give_up_after, lost * 0.8),
            start_within=self.spawning_timeout or thresholds.start_within,
            drain_within=self.graceful_shutdown_timeout or thresholds.drain_within,
            controller_gone_after=thresholds.controller_gone_after,
        )


def _is_time(each: Field[Any]) -> bool:
    return "timedelta" in str(each.type)


def _usual(each: Field[Any]) -> Any:
    return None if each.default is MISSING else each.default


def _json_name(each: Field[Any]) -> str:
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
    if each.name == "schedules":
        return tuple(_schedule(one) for one in value)
    if each.name == "policy":
        return PolicyName(value)
    if _is_time(each):
        return timedelta(seconds=float(value))
    if each.type is bool:
        return bool(value)
    if "str" in kind:
        return str(value)
    return _number(each.name, value, whole="int" in kind)


def _number(name: str, value: Any, *, whole: bool) -> int | float:
    number = float(value)
    if not isfinite(number) or (whole and number != int(number)):
        raise ValueError(f"{name} is {value!r}")
    return int(number) if whole else number


def _schedule(given: Mapping[str, Any]) -> Schedule:
    return Schedule(
        begin=int(given["begin"]),
        end=int(given["end"]),
        days=tuple(int(day) for day in given.get("days", ())),
        utc_offset=timedelta(seconds=float(given.get("utc_offset_seconds", 0))),
        min_workers=given.get("min_workers"),
        max_workers=given.get("max_workers"),
    )
