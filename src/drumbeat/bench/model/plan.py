"""The plan of a run, stored in the run's row: load mode, scaling, guardrails and objectives."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum


class LoadMode(StrEnum):
    """What the load of a run aims at: a number of connections, a throughput, or the highest stable load."""

    CONCURRENCY = "CONCURRENCY"  #: a fixed number of connections
    QPS = "QPS"  #: a target throughput, with as few connections as possible
    FIND_MAX_CONCURRENCY = "FIND_MAX_CONCURRENCY"  #: searches for the highest stable number of connections


class ScalingMode(StrEnum):
    """Whether the numbers of workers and connections are chosen freely, chosen within limits, or set exactly."""

    AUTO = "AUTO"
    BOUNDED = "BOUNDED"
    FIXED = "FIXED"


class Allocation(StrEnum):
    """How connections are divided among workers."""

    SPREAD = "spread"  #: evenly; workers with the lowest slot numbers get the remainder
    PACK = "pack"  #: each worker is filled up to its maximum before the next gets any


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Limits on the number of workers and on the connections of each worker."""

    mode: ScalingMode = ScalingMode.AUTO
    min_workers: int = 1
    max_workers: int | None = None  #: None: no limit
    min_connections: int = 1  #: per worker
    max_connections: int | None = None  #: per worker, as set by the user
    cap: int = 200  #: the maximum per worker: the user's limit if there is one, else by the capacity of its host
    allocation: Allocation = Allocation.SPREAD

    @property
    def most_workers(self) -> int | None:
        return self.min_workers if self.mode is ScalingMode.FIXED else self.max_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class QpsPlan:
    """Settings of load mode QPS, in which a controller adjusts the connections to reach a target throughput."""

    target_qps: float = 100.0
    interval: timedelta = timedelta(seconds=5)  #: time between two decisions of the controller
    starting_connections: int | None = None
    max_increase: int = 15  #: most connections that an interval adds, or twice the current ones if more; the first two: any
    bounds_patience_intervals: int = 3

    @property
    def tolerance(self) -> float:
        """Return the tolerated deviation from the target throughput, in operations per second: 5 % of it, but at least 2."""
        return max(2.0, 0.05 * self.target_qps)


class Queueing(StrEnum):
    """Which waiting sessions count as overload in find-max, the search for the highest stable number of connections."""

    AUTO = "auto"  #: like LOCKS, plus waits for internal locks (latches, group commit) once throughput stops growing
    LOCKS = "locks"  #: only sessions that wait for another transaction's lock
    ALL = "all"  #: all sessions that wait for other sessions, even while throughput grows
    OFF = "off"  #: no sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class FindMaxPlan:
    """Settings of find-max, which searches step by step for the highest stable number of connections."""

    start_connections: int = 5
    connections_increment: int = 10
    step_duration: timedelta = timedelta(seconds=30)
    settle: timedelta = timedelta(seconds=2)  #: how long the start of each step is not measured
    qps_stability_pct: float = 5.0
    latency_stability_pct: float = 20.0
    max_error_rate_pct: float = 1.0
    queueing: Queueing = Queueing.AUTO
    max_waiting_pct: float = 10.0  #: percentage of connections that may wait in the database, on average; one may always wait
    bisect: bool = True  #: whether to search between the last stable and the first unstable number of connections
    min_operations: int = 20  #: a step with fewer operations is repeated once
    most_looks: int = 5  #: if results vary, each number of connections is measured up to this often


class GuardrailMode(StrEnum):
    """What happens when a worker's host exceeds a CPU or memory threshold."""

    SOFT = "soft"  #: reduce the load, add workers; fail the run only as a last resort
    HARD = "hard"  #: the run fails when any worker is above a threshold
    WARN = "warn"  #: warn and continue (the default in FIXED mode)


class FailThreshold(StrEnum):
    """How many workers must be above a CPU or memory threshold before the run fails."""

    ALL = "all"
    MAJORITY = "majority"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrails:
    """Limits of the workers' hosts and of the server's queue, and what happens when one is exceeded."""

    enabled: bool = True
    max_cpu_percent: float = 80.0
    max_memory_percent: float = 85.0
    max_queued_percent: float | None = None  #: share of the connections that may wait in the server; None: no limit
    mode: GuardrailMode = GuardrailMode.SOFT
    back_off_percent: float = 20.0
    act_patience: int = 2  #: intervals above a limit before a worker's connections are reduced
    patience_intervals: int = 3  #: intervals above a limit before the run fails
    fail_threshold: FailThreshold = FailThreshold.ALL
    interval: timedelta = timedelta(seconds=5)  #: time between two checks


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A service level objective for one kind of operation or for all kinds together. None: no limit."""

    p95_ms: float | None = None
    p99_ms: float | None = None
    max_error_pct: float | None = None
    min_availability_pct: float | None = None  #: share of seconds in which an operation succeeded; only for all kinds together


class OnWorkerLost(StrEnum):
    """What happens to a run when one of its workers is lost."""

    FAIL = "fail"
    TOLERATE = "tolerate"  #: the run goes on until more than ``LostPolicy.tolerated`` workers are lost
    REPLACE = "replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPolicy:
    """What happens when workers are lost: ``fail``, ``replace``, or ``tolerate:n`` (up to n lost workers)."""

    action: OnWorkerLost = OnWorkerLost.FAIL
    tolerated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices per hour of a worker and of the database under test, and per Snowflake credit, in the user's currency."""

    worker_hour: float | None = None
    target_hour: float | None = None
    credit: float | None = None  #: of one Snowflake credit
    currency: str = "USD"


ALL_KINDS = ""  #: stands for all kinds of operation together, where data is keyed by kind


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """All settings of a run that the orchestrator uses."""

    load_mode: LoadMode = LoadMode.CONCURRENCY
    connections: int | None = 10  #: the total in load mode CONCURRENCY, else the maximum per worker; None: not set
    warmup: timedelta = timedelta(seconds=30)
    duration: timedelta = timedelta(seconds=300)  #: how long the measurement takes; find-max ends by itself
    ramp: timedelta = timedelta()  #: time over which a change of a worker's connections is spread
    scaling: Scaling = field(default_factory=Scaling)
    qps: QpsPlan = field(default_factory=QpsPlan)
    find_max: FindMaxPlan = field(default_factory=FindMaxPlan)
    guardrails: Guardrails = field(default_factory=Guardrails)
    objectives: Mapping[str, Objective] = field(default_factory=dict)  #: by kind of operation, or ALL_KINDS
    on_worker_lost: LostPolicy = field(default_factory=LostPolicy)
    partitions: int = 1  #: into how many parts keys are divided; a worker uses part (slot modulo this)
    prices: Prices = field(default_factory=Prices)
