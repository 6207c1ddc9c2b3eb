"""How a fleet shall be kept: every setting with its usual value, its JSON, and what is refused."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import timedelta
from enum import StrEnum
from typing import Any

from drumbeat.core.errors import InvalidSettings
from drumbeat.core.plain import shown
from drumbeat.core.pool import Thresholds
from drumbeat.fleet.model.bounds import check_bounds, check_provider_name, number, words, yes_or_no
from drumbeat.fleet.model.schedule import Schedule, read_schedule


def _s(number: float) -> timedelta:
    return timedelta(seconds=number)


_LEAST_ABSENCE = timedelta(minutes=10)
_USUAL_CALM = {"stabilisation": _s(60), "cooldown_down": _s(60), "turn_after": _s(45)}


class PolicyName(StrEnum):
    """How the number of workers is found."""

    FIXED = "fixed"  #: always ``workers``; there is no queue
    QUEUE_RATIO = "queue_ratio"  #: one worker for so many queued jobs (seed 004, C70-C72)
    QUEUE_COVER = "queue_cover"  #: every queued job covered by an idle or starting worker, and a warm buffer (seed 003, C51)
    LAG_AWARE = "lag_aware"  #: what will be needed once a worker asked for now is ready


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPolicy:
    """How many workers a pool shall have, how ill one may be, how much they may cost."""

    policy: PolicyName = PolicyName.FIXED  #: how the number of workers is found (``fleet create``: ``lag_aware``)
    provider: str = "local"  #: where its workers run: local, or runpod
    workers: int = 1  #: of the policy ``fixed``
    target: int = 1  #: connections, or whatever its workload counts, per worker
    ramp: timedelta = timedelta()  #: over which time a new target is reached

    every: timedelta = timedelta(seconds=30)  #: between two beats
    min_workers: int = 2  #: never fewer, even while nothing is queued
    max_workers: int = 10  #: never more at once, those that drain or may not be gone yet among them
    tasks_per_worker: int = 3  #: queued jobs one worker is worth to ``queue_ratio``
    keep_idle: int = 0  #: warm buffer beyond the busy ones
    concurrency: int = 1  #: jobs one worker holds at once
    headroom: float = 1.0  #: factor on the queued work
    expected_service: timedelta | None = None  #: how long a job is expected to take; used until one was seen to end
    wait_slo: timedelta | None = None  #: scale up when the oldest ready job has waited longer
    schedules: tuple[Schedule, ...] = ()  #: other bounds at certain hours; only in files

    heartbeat_timeout: timedelta | None = None  #: a worker this silent is lost; None: the pool's ``lost_after``
    quiet_timeout: timedelta = timedelta(seconds=600)  #: the same for a worker that holds nothing while nothing is queued
    spawning_timeout: timedelta | None = None  #: from its row to joining; None: the pool's ``start_within``
    startup_grace: timedelta = timedelta(seconds=1200)  #: from joining to ready
    installing_timeout: timedelta = timedelta(seconds=1800)  #: the same for one that says it is installing
    graceful_shutdown_timeout: timedelta | None = None  #: to finish and leave; 0: at once; None: the pool's ``drain_within``
    stuck_timeout: timedelta | None = None  #: of jobs without a timeout, their own or the pool's; None: 300 s, queue_ratio only
    ready_not_claiming_timeout: timedelta = timedelta(seconds=600)  #: ready, work to claim, and nothing claimed
    gpu_not_detected_timeout: timedelta = timedelta(seconds=300)  #: ready, and shows no GPU memory
    gpu_stale_timeout: timedelta = timedelta(seconds=120)  #: GPU figures this old are warned of
    needs_gpu: bool = False  #: a worker that shows no GPU has failed; else it is a warning
    error_cleanup_grace: timedelta = timedelta(seconds=600)  #: an ended worker whose instance is not gone by then is warned of
    max_lifetime: timedelta | None = None  #: drained when older
    exempt_max_lifetime: timedelta = timedelta(seconds=7200)  #: the same for workers exempt from capacity
    contract: str | None = None  #: workers made under another contract are drained and replaced
    max_task_failures: int = 3  #: failed jobs in a row after which a worker is replaced; 0: never
    task_failure_window: timedelta = timedelta(seconds=1800)  #: within which they count

    idle_timeout: timedelta = timedelta(seconds=600)  #: idle for so long a worker may be sent away
    overcapacity_idle_timeout: timedelta = timedelta(seconds=30)  #: the same while there are more than wanted
    spawning_grace: timedelta = timedelta(seconds=180)  #: a starting worker is not given up as surplus before
    stabilisation: timedelta | None = None  #: scaling down goes no lower than the highest wish of this window; None: usual
    step_up: int | None = None  #: workers spawned in one beat at most
    step_down: int | None = None  #: workers sent away in one beat at most
    cooldown_up: timedelta = timedelta()  #: between two scalings up
    cooldown_down: timedelta | None = None  #: between two scalings down; None: usual
    turn_after: timedelta | None = None  #: between scalings of opposite directions; None: usual

    price_per_hour: float | None = None  #: of one worker; None: the provider's
    billing_granule: timedelta | None = None  #: paid time is rounded up to this; None: the provider's
    max_per_hour: float | None = None  #: money in any clock hour (UTC); also what may run at once in an hour
    max_per_day: float | None = None  #: money in any day (UTC)
    max_per_month: float | None = None  #: money in any month (UTC)

    storage_check_interval_cycles: int = 10  #: beats between two looks at the disks that workers tell of; 0: never
    storage_min_free_gb: float = 50  #: a volume with less than this free is expanded
    storage_max_percent_used: float = 85  #: one that is so full, too
    storage_expansion_increment_gb: int = 50  #: by so much; 0: a warning only
    storage_max_gb: int = 1000  #: no volume is expanded beyond, whatever is written to it

    failure_rate: float = 0.8  #: share of worker faults at which the breaker opens
    failure_window: timedelta = timedelta(seconds=300)  #: within which they are counted
    failure_min: int = 5  #: ended workers below which no rate is taken
    breaker_rest: timedelta = timedelta(seconds=300)  #: from opening to the trial
    backoff_first: timedelta = timedelta(seconds=40)  #: after the second provider fault in a row; the first is forgiven
    backoff_most: timedelta = timedelta(seconds=600)  #: it doubles with each fault up to this

    def __post_init__(self) -> None:
        for each in fields(self):
            check_bounds(each.name, getattr(self, each.name))
        check_provider_name(self.provider)
        if self.min_workers > self.max_workers:
            raise InvalidSettings(
                f"expected min_workers ≤ max_workers, got {self.min_workers} and {self.max_workers}; set both"
            )
        most = max([self.max_workers, *(each.max_workers or 0 for each in self.schedules)])
        if any((each.min_workers or 0) > most for each in self.schedules):
            raise InvalidSettings(f"expected a schedule's min_workers ≤ max_workers, which is {most}; set both in the schedule")

    @property
    def controller_gone_after(self) -> timedelta:
        """When workers leave that nobody decides about: a daemon may be restarted, cron may beat, and miss a few."""
        return max(_LEAST_ABSENCE, self.every * 5)

    @property
    def has_ceiling(self) -> bool:
        return any(most is not None for most in (self.max_per_hour, self.max_per_day, self.max_per_month))

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
    def usual_json(cls) -> dict[str, Any]:
        """Every field as it is where nobody set it."""
        return {_json_name(each): _plain(_usual(each)) for each in fields(cls)}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> "FleetPolicy":
        """The policy a pool's row holds; what it does not know is passed over. Raises InvalidSettings.

        A maximum below the usual minimum lowers that minimum, unless a minimum is given too.
        """
        told = {each.name: _read(each, given[name]) for each in fields(cls) if (name := _json_name(each)) in given}
        most, least = told.get("max_workers"), cls.usual_json()["min_workers"]
        return cls(**({"min_workers": most} if most is not None and 0 <= most < least else {}) | told)

    def limits(self, thresholds: Thresholds) -> Thresholds:
        """The pool's thresholds with this policy's own over them, still in order, and none that its workers cannot keep."""
        told = self.heartbeat_timeout
        lost = thresholds.lost_after if told is None else max(told, least_silence(thresholds))
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
    """The shortest silence by which a worker of this pool may be called lost: it beats and ends itself by the pool's times."""
    return min(thresholds.lost_after, thresholds.give_up_after + thresholds.heartbeat_every)


def _is_time(each: Field[Any]) -> bool:
    return "timedelta" in str(each.type)


def _usual(each: Field[Any]) -> Any:
    return None if each.default is MISSING else each.default


def _json_name(each: Field[Any]) -> str:
    """As a pool's row has it."""
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
        return words(each.name, value)
    try:
        return _READERS[each.name](value) if each.name in _READERS else _figure(each, value)
    except (TypeError, ValueError, OverflowError, KeyError, AttributeError) as exc:
        raise InvalidSettings(
            f"expected numbers (times in seconds) in a fleet's policy, got {each.name} {shown(value)}: {exc}"
        ) from exc


def _figure(each: Field[Any], value: Any) -> Any:
    if _is_time(each):
        return timedelta(seconds=number(each.name, value, whole=False))
    return number(each.name, value, whole="int" in str(each.type))


def _policy_name(value: Any) -> PolicyName:
    if value not in {each.value for each in PolicyName}:
        raise InvalidSettings(f"expected the policy {', '.join(PolicyName)}; got {shown(value)}")
    return PolicyName(value)


def _schedules(value: Any) -> tuple[Schedule, ...]:
    return tuple(read_schedule(one) for one in value)


_READERS: Mapping[str, Callable[[Any], Any]] = {"schedules": _schedules, "policy": _policy_name}
