"""What a decision is based on: the fleet's view of a pool, and the state that each beat stores for the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from drumbeat.core.errors import SpawnCause
from drumbeat.core.job import JobId
from drumbeat.core.pool import PoolId, Thresholds
from drumbeat.core.recovery import ListedInstance, PoolSnapshot
from drumbeat.core.worker import Worker, WorkerId
from drumbeat.fleet.model.policy import FleetPolicy

_SECOND = timedelta(seconds=1)
_HOUR = timedelta(hours=1)
INTERVALS = 4  #: how many intervals between beats a view holds, the newest ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """The properties of a provider that decisions depend on."""

    name: str = ""
    unique_names: bool = True  #: the provider itself refuses a second instance with the same name
    settle: timedelta = timedelta()  #: how long a newly requested instance can be missing from the provider's lists
    price_per_hour: float = 0.0
    billing_granule: timedelta = _SECOND
    usual_start: timedelta = _SECOND  #: assumed spawn lag until one has been measured
    expands_volumes: bool = False
    asked_with: str = ""  #: fingerprint of the key and settings in use, to detect when they change


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """Numbers of jobs in the pool's queue. Counting stops at a limit, so large numbers can be too low."""

    ready: int = 0  #: jobs that the pool's workers could claim now
    blocked: int = 0  #: ready jobs that the pool's workers cannot claim now, due to group limit, capability, type or its pause
    delayed: int = 0
    claimed: int = 0
    oldest_ready: datetime | None = None  #: since when the oldest ready or blocked job has been waiting
    oldest_claimable: datetime | None = None  #: the same for claimable jobs; read if some are blocked and wait_slo is exceeded
    due: tuple[datetime, ...] = ()  #: when the next delayed jobs come due, soonest first; may be incomplete
    demand: Mapping[str, int] = field(default_factory=dict)  #: number of ready jobs by the capability they need, '' for none
    types: Mapping[str, int] = field(default_factory=dict)  #: number of ready jobs by type, in a sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which jobs the pool's workers take: by type and capability, and with which default timeout."""

    types: tuple[str, ...] = ()  #: job types that the workers take; empty: every type
    capabilities: tuple[str, ...] = ()
    timeout: timedelta | None = None  #: timeout of jobs that set none

    def offers(self, capability: str) -> bool:
        return not capability or capability in self.capabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldJob:
    """A job that a worker has claimed and not finished yet."""

    job_id: JobId
    worker_id: WorkerId
    claimed_at: datetime
    type: str = ""
    lease_until: datetime | None = None
    timeout: timedelta | None = None  #: the job's timeout, or the plan's if the job has none
    progress: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """An attempt at a job that ended since the last beat: how long it took, and whether it succeeded."""

    worker_id: WorkerId
    took: timedelta
    type: str = ""
    ok: bool = True
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Number of jobs that arrived within one minute."""

    minute: datetime  #: when the minute begins
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTime:
    """How long jobs of one type take, from recent attempts."""

    type: str
    count: float  #: total weight of the attempts; older attempts count less
    mean: timedelta
    longest: timedelta
    variance: float = 0.0  #: in seconds squared


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Money spent on the pool's workers in the current hour, day and month (UTC)."""

    hour: float = 0.0
    day: float = 0.0
    month: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """Price per hour and billing granule (shortest billed time) of a worker. A price in the worker's row takes precedence."""

    price: float  #: price per hour
    granule: timedelta
    unpriced: float = 0.0  #: price per hour of a worker whose engine has no price: its row has a price of 0

    def of(self, worker: Worker) -> float:
        price = worker.meta.get("price_per_hour")
        return float(price) or self.unpriced if isinstance(price, int | float) else self.price


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledSpending:
    """Money spent on the workers that were reaped before ``until``, so that later beats need not read these rows again."""

    at: datetime  #: a time in the hour, day and month of ``spent``
    until: datetime
    rates: Tariff  #: the prices by which ``spent`` was computed
    spent: Spending = Spending()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnResult:
    """The provider's answer to one of the last beat's spawns."""

    worker_id: WorkerId
    at: datetime
    cause: SpawnCause | None = None  #: why it failed; None: the worker was started
    retry_after: timedelta | None = None  #: how long the provider asks to wait
    error: str | None = None  #: the provider's error message


@dataclass(frozen=True, slots=True, kw_only=True)
class WishedSize:
    """How many workers a beat wanted before stabilisation was applied."""

    at: datetime
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffState:
    """How often the provider failed in a row, and when it will be asked again."""

    faults: int = 0
    cause: SpawnCause | None = None
    last_at: datetime | None = None
    until: datetime | None = None
    error: str | None = None  #: the provider's last error message
    asked_with: str = ""  #: fingerprint of the key and settings of the failed call


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerState:
    """Whether failed workers have opened the circuit breaker, which stops spawning. Closed while ``opened_at`` is None."""

    opened_at: datetime | None = None
    trial: WorkerId | None = None  #: the one worker started on trial, to see whether workers start again
    faults: int = 0  #: number of workers that had failed when the breaker opened
    starts: int = 0  #: number of workers counted then, of which ``faults`` had failed
    error: str | None = None  #: which worker failed last, and how


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """State that a beat stores, in its summary, for the next one. If it is lost, the fleet is only more cautious."""

    wanted: tuple[WishedSize, ...] = ()
    up_at: datetime | None = None
    down_at: datetime | None = None
    missing: Mapping[str, datetime] = field(default_factory=dict)  #: live workers not in the provider's list, and since when
    backoff: BackoffState = BackoffState()
    breaker: BreakerState = BreakerState()
    failed_spawns: int = 0  #: how often the provider failed to start a worker, before this beat
    services: tuple[ServiceTime, ...] = ()
    counted_from: datetime | None = None  #: when counting arrivals began; ``arrivals`` and ``levels`` are in seconds since then
    arrivals: tuple[tuple[float, int], ...] = ()  #: per beat: its time, and the arrivals since the beat before; oldest first
    idle_since: Mapping[str, datetime] = field(default_factory=dict)  #: workers without jobs, and since when
    streaks: Mapping[str, tuple[datetime, ...]] = field(default_factory=dict)  #: times of failed jobs in a row, by worker
    levels: tuple[tuple[bool, float], ...] = ()  #: entry n: whether n + 1 workers are needed, and since when
    gaps: tuple[tuple[int, float], ...] = ()  #: band (group of levels), and seconds a level was not needed; latest last
    uses: tuple[tuple[int, float], ...] = ()  #: band (group of levels), and mean seconds for which a level is needed
    claimable_since: datetime | None = None  #: since when every beat has found claimable jobs
    cursor: JobId | None = None  #: the last job counted as an arrival
    ready: int | None = None  #: ready jobs when the queue was last read
    disks_at: datetime | None = None  #: when the workers' disks were last checked
    asked_gb: Mapping[str, int] = field(default_factory=dict)  #: nearly full volumes at ``disks_at``, and the requested size


def usual_interval(intervals: Sequence[timedelta]) -> timedelta:
    """Return the usual time between beats: the second longest of the latest intervals, so that one outage does not count.

    If there is only one interval, return that interval, but at most an hour; if there is none, return 0.
    """
    longest = sorted(intervals[-INTERVALS:], reverse=True)[:2]
    return longest[1] if len(longest) > 1 else min([*longest, _HOUR]) if longest else timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBeat:
    """When the last beat was, and the results of its spawns."""

    at: datetime
    spawns: tuple[SpawnResult, ...] = ()
    asked_with: str = ""  #: fingerprint of the key and settings that the beat used


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """Everything a decision needs to know about a pool at one moment. ``now`` is the store's time."""

    pool_id: PoolId
    now: datetime
    looking_since: datetime  #: since when the controller observes the pool; workers' silence before this does not count
    paused_until: datetime | None
    thresholds: Thresholds
    policy: FleetPolicy
    workers: tuple[Worker, ...]  #: live workers, ended ones that may still run, and recently ended ones
    instances: tuple[ListedInstance, ...]
    unnoted: Mapping[WorkerId, str] = field(default_factory=dict)  #: provider's ids of instances that are missing in the rows
    instances_partial: bool = False  #: the provider's list is incomplete
    unlisted: str | None = None  #: why the provider failed to list its instances
    provider: Provider = Provider()
    last_number: int = -1  #: highest number in any worker's name so far, also of old rows that the view leaves out
    queue: QueueView | None = None  #: None: there is no queue, or it could not be read
    held: tuple[HeldJob, ...] = ()
    held_partial: bool = False  #: ``held`` is incomplete
    arrived: tuple[Arrivals, ...] = ()  #: jobs that arrived since the last beat
    finished: tuple[Finished, ...] = ()  #: attempts that ended since the last beat; may be incomplete
    cursor: JobId | None = None  #: the last job counted in ``arrived``
    spent: Spending = Spending()
    settled: SettledSpending | None = None  #: the part of ``spent`` that the next beat need not compute again
    last: LastBeat | None = None
    state: FleetState | None = None  #: None: the last beat left no state
    plan: Plan = Plan()
    every: timedelta = timedelta()  #: the time between the controller's beats, if known
    intervals: tuple[timedelta, ...] = ()  #: times between the latest beats, up to this one
    retry_at: datetime | None = None  #: when a user last asked to try the provider again

    @property
    def is_paused(self) -> bool:
        return self.paused_until is not None and self.paused_until > self.now

    @property
    def cadence(self) -> timedelta:
        """The expected time between beats: the longest of the policy's, the controller's and the measured interval."""
        return max(self.policy.every, self.every, usual_interval(self.intervals))

    @property
    def snapshot(self) -> PoolSnapshot:
        return PoolSnapshot(
            now=self.now,
            looking_since=self.looking_since,
            thresholds=self.policy.limits(self.thresholds),
            workers=self.workers,
            instances=self.instances,
            partial=self.instances_partial,
            unlisted=self.unlisted,
            unique_names=self.provider.unique_names,
            provider=self.provider.name,
            settle=self.provider.settle,
        )
