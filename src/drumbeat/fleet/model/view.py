"""What the fleet sees and what it remembers from beat to beat."""

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
INTERVALS = 4  #: between beats, of which a view tells


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Where workers come from, as far as deciding needs it."""

    name: str = ""
    unique_names: bool = True  #: it refuses a second instance of one name itself
    settle: timedelta = timedelta()  #: so long may an instance that was asked for be in no list
    price_per_hour: float = 0.0
    billing_granule: timedelta = _SECOND
    usual_start: timedelta = _SECOND  #: the spawn lag until one was measured
    expands_volumes: bool = False
    asked_with: str = ""  #: tells one key and one set of settings from another


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """How the pool's queue stands. Counts may stop at a cap."""

    ready: int = 0  #: that the pool's workers could claim now
    blocked: int = 0  #: ready, but of a full group, or for workers of another kind
    delayed: int = 0
    claimed: int = 0
    oldest_ready: datetime | None = None  #: of both
    due: tuple[datetime, ...] = ()  #: when the next delayed jobs come due, soonest first; may be a part of them
    demand: Mapping[str, int] = field(default_factory=dict)  #: ready jobs by the capability they need, '' for none
    types: Mapping[str, int] = field(default_factory=dict)  #: ready jobs by type, of those looked at; may be a part


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the pool's workers are told to work on."""

    types: tuple[str, ...] = ()  #: the only ones they take; none: every type
    capabilities: tuple[str, ...] = ()
    timeout: timedelta | None = None  #: of jobs that name none of their own

    def offers(self, capability: str) -> bool:
        return not capability or capability in self.capabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldJob:
    """A job that a worker holds."""

    job_id: JobId
    worker_id: WorkerId
    claimed_at: datetime
    type: str = ""
    lease_until: datetime | None = None
    timeout: timedelta | None = None  #: its own, or else the plan's
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
    error: str | None = None  #: in its own words


@dataclass(frozen=True, slots=True, kw_only=True)
class WishedSize:
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
    error: str | None = None  #: what the provider said last
    asked_with: str = ""  #: and with which key and settings it was asked


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerState:
    """Whether worker faults have stopped spawning. Closed while ``opened_at`` is None."""

    opened_at: datetime | None = None
    trial: WorkerId | None = None  #: the one worker let through
    faults: int = 0  #: workers that had failed when it opened
    starts: int = 0  #: and of how many
    error: str | None = None  #: who failed last, and how


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """What a beat leaves to the next, in its row's summary. Losing it may only make the fleet more cautious."""

    wanted: tuple[WishedSize, ...] = ()
    up_at: datetime | None = None
    down_at: datetime | None = None
    missing: Mapping[str, datetime] = field(default_factory=dict)  #: live workers not listed, and since when
    backoff: BackoffState = BackoffState()
    breaker: BreakerState = BreakerState()
    failed_spawns: int = 0  #: how often the provider failed to start a worker, before the beat that left this
    services: tuple[ServiceTime, ...] = ()
    counted_from: datetime | None = None  #: arrivals are known since then; the seconds below count from there
    arrivals: tuple[tuple[float, int], ...] = ()  #: when a beat was, and how many came since the one before; oldest first
    idle_since: Mapping[str, datetime] = field(default_factory=dict)  #: workers that hold nothing, and since when
    streaks: Mapping[str, tuple[datetime, ...]] = field(default_factory=dict)  #: failed jobs in a row, by worker
    levels: tuple[tuple[bool, float], ...] = ()  #: of n + 1 workers: whether so many are needed, and since when
    gaps: tuple[tuple[int, float], ...] = ()  #: a band of levels, and for how many seconds one was not needed; latest last
    uses: tuple[tuple[int, float], ...] = ()  #: a band of levels, and for how many seconds one is needed, on average
    claimable_since: datetime | None = None  #: since when every beat has seen jobs that could be claimed
    cursor: JobId | None = None  #: the last job whose coming was counted
    ready: int | None = None  #: how many jobs were ready, when they could last be counted
    disks_at: datetime | None = None  #: when the disks that workers tell of were last looked at
    asked_gb: Mapping[str, int] = field(default_factory=dict)  #: volumes that ran full then, and the size asked for


def usual_interval(intervals: Sequence[timedelta]) -> timedelta:
    """How far apart beats are: the longest but one of the latest, as one outage is no habit. A single one: an hour at most."""
    longest = sorted(intervals[-INTERVALS:], reverse=True)[:2]
    return longest[1] if len(longest) > 1 else min([*longest, _HOUR]) if longest else timedelta()


@dataclass(frozen=True, slots=True, kw_only=True)
class LastBeat:
    """What became of the beat before."""

    at: datetime
    spawns: tuple[SpawnResult, ...] = ()
    asked_with: str = ""  #: the key and settings that its provider was asked with


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
    instances: tuple[ListedInstance, ...]
    unnoted: Mapping[WorkerId, str] = field(default_factory=dict)  #: what the provider calls instances whose rows do not say
    instances_partial: bool = False  #: the provider said, or it is known, that the list is not whole
    unlisted: str | None = None  #: why the provider gave no list
    provider: Provider = Provider()
    last_number: int = -1  #: the highest number of any worker ever; rows of long ago are not in the view
    queue: QueueView | None = None  #: None: there is none, or it could not be read
    held: tuple[HeldJob, ...] = ()
    held_partial: bool = False  #: there are more than are shown
    arrived: tuple[Arrivals, ...] = ()  #: since the last beat
    finished: tuple[Finished, ...] = ()  #: since the last beat; may be a part
    cursor: JobId | None = None  #: the last job whose coming is in ``arrived``
    spent: Spending = Spending()
    last: LastBeat | None = None
    state: FleetState | None = None  #: None: nothing is remembered
    plan: Plan = Plan()
    every: timedelta = timedelta()  #: how often its controller beats, if that says so
    intervals: tuple[timedelta, ...] = ()  #: between the beats of late, up to this one
    retry_at: datetime | None = None  #: when a person last asked that the provider be tried again

    @property
    def is_paused(self) -> bool:
        return self.paused_until is not None and self.paused_until > self.now

    @property
    def cadence(self) -> timedelta:
        """How far apart beats really are: by the policy, by the controller, or by what was seen of late; the longest."""
        return max(self.policy.every, self.every, usual_interval(self.intervals))

    @property
    def sight(self) -> PoolSnapshot:
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
