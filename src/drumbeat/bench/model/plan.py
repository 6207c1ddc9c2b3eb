"""The plan of a run: load mode, scaling, guardrails, objectives. It is stored in the run's row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum


class LoadMode(StrEnum):
    """The goal of the load."""

    CONCURRENCY = "CONCURRENCY"  #: a fixed number of connections
    QPS = "QPS"  #: a target throughput, with as few connections as possible
    FIND_MAX_CONCURRENCY = "FIND_MAX_CONCURRENCY"  #: the highest number of connections that is stable


class ScalingMode(StrEnum):
    """How the numbers of workers and connections are limited."""

    AUTO = "AUTO"
    BOUNDED = "BOUNDED"
    FIXED = "FIXED"


class Allocation(StrEnum):
    """How connections are divided among workers."""

    SPREAD = "spread"  #: evenly, the remainder to the lowest slots
    PACK = "pack"  #: fill each worker up to its cap before the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Limits for workers and for connections per worker."""

    mode: ScalingMode = ScalingMode.AUTO
    min_workers: int = 1
    max_workers: int | None = None  #: None: no limit
    min_connections: int = 1  #: per worker
    max_connections: int | None = None  #: per worker, as set by the user
    cap: int = 200  #: effective maximum per worker: the user's limit, or the capacity of its host
    allocation: Allocation = Allocation.SPREAD

    @property
    def most_workers(self) -> int | None:
        return self.min_workers if self.mode is ScalingMode.FIXED else self.max_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class QpsPlan:
    """How a target throughput is reached and kept."""

    target_qps: float = 100.0
    interval: timedelta = timedelta(seconds=5)  #: between two decisions
    starting_connections: int | None = None
    max_increase: int = 15  #: connections per interval; the feed-forward step may add more
    bounds_patience_intervals: int = 3

    @property
    def tolerance(self) -> float:
        """The tolerated deviation from the target: 5 %, at least 2 operations per second."""
        return max(2.0, 0.05 * self.target_qps)


class Queueing(StrEnum):
    """Which waiting sessions in the server make a level unstable."""

    AUTO = "auto"  #: as LOCKS; also waits for internal locks (latches, group commit) once throughput stops growing
    LOCKS = "locks"  #: only sessions that wait for another transaction's lock
    ALL = "all"  #: all sessions that wait for other sessions, even while throughput grows
    OFF = "off"  #: none


@dataclass(frozen=True, slots=True, kw_only=True)
class FindMaxPlan:
    """How find-max searches for the highest stable number of connections."""

    start_connections: int = 5
    connections_increment: int = 10
    step_duration: timedelta = timedelta(seconds=30)
    settle: timedelta = timedelta(seconds=2)  #: the start of a step, which is not measured
    qps_stability_pct: float = 5.0
    latency_stability_pct: float = 20.0
    max_error_rate_pct: float = 1.0
    queueing: Queueing = Queueing.AUTO
    max_waiting_pct: float = 10.0  #: of the connections, on average over a step; a single waiting session is always allowed
    bisect: bool = True  #: search for the knee between the last stable and the first unstable level
    min_operations: int = 20  #: a step with fewer operations is repeated once
    most_looks: int = 5  #: max measurements of one level; if results vary little, one or two are enough


class GuardrailMode(StrEnum):
    """What happens when a threshold is exceeded."""

    SOFT = "soft"  #: back off, scale out, degrade; fail only as a last resort
    HARD = "hard"  #: any worker above it fails the run
    WARN = "warn"  #: warn and continue (the default in FIXED mode)


class FailThreshold(StrEnum):
    """How many workers must be above a threshold before the run fails."""

    ALL = "all"
    MAJORITY = "majority"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrails:
    """Resource limits of the workers' hosts."""

    enabled: bool = True
    max_cpu_percent: float = 80.0
    max_memory_percent: float = 85.0
    mode: GuardrailMode = GuardrailMode.SOFT
    back_off_percent: float = 20.0
    act_patience: int = 2  #: intervals above a limit before a worker's connections are reduced
    patience_intervals: int = 3  #: intervals above a limit before the run fails
    fail_threshold: FailThreshold = FailThreshold.ALL
    interval: timedelta = timedelta(seconds=5)  #: between two checks


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A service level for one kind of operation or for all together. None: no limit."""

    p95_ms: float | None = None
    p99_ms: float | None = None
    max_error_pct: float | None = None
    min_availability_pct: float | None = None  #: share of seconds with a successful operation; only for all kinds


class OnWorkerLost(StrEnum):
    """What a lost worker means for its run."""

    FAIL = "fail"
    TOLERATE = "tolerate"  #: up to ``tolerated`` workers
    REPLACE = "replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPolicy:
    """``fail``, ``tolerate:n`` or ``replace``."""

    action: OnWorkerLost = OnWorkerLost.FAIL
    tolerated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices per hour, in the user's currency."""

    worker_hour: float | None = None
    target_hour: float | None = None
    currency: str = "USD"


ALL_KINDS = ""  #: the key of the objective for all kinds together


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """All settings of a run that the orchestrator uses."""

    load_mode: LoadMode = LoadMode.CONCURRENCY
    connections: int | None = 10  #: CONCURRENCY: the total; otherwise the maximum per worker; None: not set
    warmup: timedelta = timedelta(seconds=30)
    duration: timedelta = timedelta(seconds=300)  #: of the measurement; find-max ends by itself
    ramp: timedelta = timedelta()  #: duration over which a change of connections is spread
    scaling: Scaling = field(default_factory=Scaling)
    qps: QpsPlan = field(default_factory=QpsPlan)
    find_max: FindMaxPlan = field(default_factory=FindMaxPlan)
    guardrails: Guardrails = field(default_factory=Guardrails)
    objectives: Mapping[str, Objective] = field(default_factory=dict)  #: by kind; ALL_KINDS for all together
    on_worker_lost: LostPolicy = field(default_factory=LostPolicy)
    partitions: int = 1  #: of sharded keys; a worker's partition is its slot modulo this
    prices: Prices = field(default_factory=Prices)
