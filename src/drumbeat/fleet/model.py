"""What the fleet sees, what it is told, what it remembers and what it may do: frozen values in, frozen actions out."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from math import isfinite
from typing import Any

from drumbeat.core.errors import InvalidSettings, SpawnCause
from drumbeat.core.job import JobId
from drumbeat.core.pool import PoolId, Thresholds
from drumbeat.core.recovery import EndOverdue, EndStray, MarkFailed, MarkLost, Reap, Recovery, Seen, Sight
from drumbeat.core.worker import Worker, WorkerId

__all__ = [
    "Action",
    "Arrivals",
    "AskToDrain",
    "BackoffState",
    "BreakerState",
    "EndOverdue",
    "EndStray",
    "ExpireJobs",
    "Fail",
    "Finished",
    "FleetPolicy",
    "FleetState",
    "FleetView",
    "Held",
    "LastBeat",
    "Limit",
    "MarkFailed",
    "MarkLost",
    "PolicyName",
    "Provider",
    "Queue",
    "Reap",
    "ReleaseJobs",
    "Schedule",
    "Seen",
    "ServiceTime",
    "SetTarget",
    "Spawn",
    "SpawnCause",
    "SpawnResult",
    "Spending",
    "Verdict",
    "Wanted",
    "Warn",
    "Wish",
]

_SECOND = timedelta(seconds=1)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Where workers come from, as far as deciding needs it."""

    name: str = ""
    unique_names: bool = True  #: it refuses a second instance of one name itself
    price_per_hour: float = 0.0
    billing_granule: timedelta = _SECOND
    usual_start: timedelta = _SECOND  #: the spawn lag until one was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """How the pool's queue stands. Counts may stop at a cap."""

    ready: int = 0
    delayed: int = 0
    claimed: int = 0
    oldest_ready: datetime | None = None
    due: tuple[datetime, ...] = ()  #: when the next delayed jobs come due, soonest first; may be a part of them
    demand: Mapping[str, int] = field(default_factory=dict)  #: ready jobs by the capability they need, '' for none
    types: Mapping[str, int] = field(default_factory=dict)  #: ready jobs by type, of those looked at; may be a part


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A job that a worker holds."""

    job_id: JobId
    worker_id: WorkerId
    claimed_at: datetime
    type: str = ""
    lease_until: datetime | None = None
    timeout: timedelta | None = None
    progress: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """An attempt that ended since the last beat."""

    worker_id: WorkerId
    took: timedelta
    type: str = ""
    ok: bool = True
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Jobs that came due within one minute."""

    minute: datetime  #: its beginning
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTime:
    """How long jobs of one type take, from attempts seen lately."""

    type: str
    count: float  #: weight of what was seen; old attempts fade
    mean: timedelta
    longest: timedelta
    variance: float = 0.0  #: of the seconds it takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What was spent in the running hour, day and month (UTC), by workers of the whole pool."""

    hour: float = 0.0
    day: float = 0.0
    month: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnResult:
    """What the provider said when the last beat asked it for a worker."""

    worker_id: WorkerId
    at: datetime
    cause: SpawnCause | None = None  #: None: it was started
    retry_after: timedelta | None = None  #: the provider's own wish


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How many workers a beat wished for, before the stabilisation window."""

    at: datetime
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffState:
    """Provider faults in a row, and when it may be asked again."""

    faults: int = 0
    cause: SpawnCause | None = None
    last_at: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerState:
    """Whether worker faults have stopped spawning. Closed while ``opened_at`` is None."""

    opened_at: datetime | None = None
    trial: WorkerId | None = None  #: the one worker let through


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """What a beat leaves to the next, in its row's summary. Losing it may only make the fleet more cautious."""

    wanted: tuple[Wanted, ...] = ()
    up_at: datetime | None = None
    down_at: datetime | None = None
    missing: Mapping[str, datetime] = field(default_factory=dict)  #: live workers not listed, and since when
    backoff: BackoffState = BackoffState()
    breaker: BreakerState = BreakerState()
    services: tuple[ServiceTime, ...] = ()
    counted_from: datetime | None = None  #: arrivals are known since then; the seconds below count from there
    arrivals: tuple[tuple[float, int], ...] = ()  #: when a beat was, and how many came since the one before; oldest first
    idle_since: Mapping[str, datetime] = field(default_factory=dict)  #: workers that hold nothing, and since when
    streaks: Mapping[str, tuple[datetime, ...]] = field(default_factory=dict)  #: failed jobs in a row, by worker
    levels: tuple[tuple[bool, float], ...] = ()  #: of n + 1 workers: whether so many are needed, and since when
    gaps: tuple[tuple[int, float], ...] = ()  #: a band of levels, and for how many seconds one was not needed; latest last
    uses: tuple[tuple[int, float], ...] = ()  #: a band of levels, and for how many seconds one is needed, on average
    cursor: JobId | None = None  #: the last job whose coming was counted


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBeat:
    """What became of the beat before."""

    at: datetime
    spawns: tuple[SpawnResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """One consistent look at a pool. The time is in it, by the store's clock."""

    pool_id: PoolId
    now: datetime
    looking_since: datetime  #: before this the controller saw nothing; no silence is counted from before
    paused_until: datetime | None
    thresholds: Thresholds
    policy: FleetPolicy
    workers: tuple[Worker, ...]  #: live, not reaped, or ended of late
    instances: tuple[Seen, ...]
    instances_partial: bool = False  #: the provider said, or it is known, that the list is not whole
    provider: Provider = Provider()
    last_number: int = -1  #: the highest number of any worker ever; rows of long ago are not in the view
    queue: Queue | None = None  #: None: there is none, or it could not be read
    held: tuple[Held, ...] = ()
    held_partial: bool = False  #: there are more than are shown
    arrived: tuple[Arrivals, ...] = ()  #: since the last beat
    finished: tuple[Finished, ...] = ()  #: since the last beat; may be a part
    cursor: JobId | None = None  #: the last job whose coming is in ``arrived``
    spent: Spending = Spending()
    last: LastBeat | None = None
    state: FleetState | None = None  #: None: nothing is remembered

    @property
    def sight(self) -> Sight:
        return Sight(
            now=self.now,
            looking_since=self.looking_since,
            thresholds=self.policy.limits(self.thresholds),
            workers=self.workers,
            instances=self.instances,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What one rule wanted, as a number of workers, and why."""

    rule: str
    workers: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A bound on the wish, and whether it changed anything."""

    name: str
    before: int
    after: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How many workers there shall be, what each rule wanted, and which limits bound."""

    desired: int
    wishes: tuple[Wish, ...] = ()
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """Start a worker. Named here, so that asking twice is asking once."""

    worker_id: WorkerId
    slot: int
    group_count: int
    reason: str
    is_new: bool = True  #: False: its row is there, its instance is not
    at: datetime | None = None  #: the beat that asks: after one refusal the rest of it is not tried
    price_per_hour: float | None = None  #: kept with its row
    contract: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTarget:
    """Tell a worker what to hold."""

    worker_id: WorkerId
    target: int
    ramp: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskToDrain:
    """Ask a worker to finish and leave."""

    worker_id: WorkerId
    within: timedelta
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """Close the row of a worker that is alive and ill; its jobs go back and its instance is ended after that."""

    worker: Worker
    reason: str
    rule: str  #: which one found it ill


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseJobs:
    """Take back what an ended worker holds. Not done while its row is live."""

    worker_id: WorkerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireJobs:
    """Take back jobs whose lease has run out, whoever held them."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warn:
    """Something a person should know; nothing is done about it."""

    worker_id: WorkerId
    rule: str
    reason: str


Action = Recovery | Spawn | SetTarget | AskToDrain | Fail | ReleaseJobs | ExpireJobs | Warn
