"""What a run shall do: load mode, scaling, guardrails, objectives. Checked when made; kept in the run's row."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum


class LoadMode(StrEnum):
    """What the load is made to reach."""

    CONCURRENCY = "CONCURRENCY"  #: a fixed number of connections
    QPS = "QPS"  #: a throughput, with as few connections as it takes
    FIND_MAX_CONCURRENCY = "FIND_MAX_CONCURRENCY"  #: the most connections that are still stable


class ScalingMode(StrEnum):
    """Who says how many workers and connections there may be."""

    AUTO = "AUTO"
    BOUNDED = "BOUNDED"
    FIXED = "FIXED"


class Allocation(StrEnum):
    """How connections are dealt out to workers."""

    SPREAD = "spread"  #: evenly, the remainder to the lowest slots
    PACK = "pack"  #: each worker to its cap before the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """How many workers, and how many connections each."""

    mode: ScalingMode = ScalingMode.AUTO
    min_workers: int = 1
    max_workers: int | None = None  #: None: no limit of the user's
    min_connections: int = 1  #: a worker's floor
    max_connections: int | None = None  #: a worker's ceiling as the user set it
    cap: int = 200  #: what one worker may hold after all: the user's ceiling, or what its host was found to take
    allocation: Allocation = Allocation.SPREAD

    @property
    def most_workers(self) -> int | None:
        return self.min_workers if self.mode is ScalingMode.FIXED else self.max_workers


@dataclass(frozen=True, slots=True, kw_only=True)
class QpsPlan:
    """How a throughput is held."""

    target_qps: float = 100.0
    interval: timedelta = timedelta(seconds=5)  #: between two looks
    starting_connections: int | None = None
    max_increase: int = 15  #: connections, in one interval; the feed-forward step may take more
    bounds_patience_intervals: int = 3

    @property
    def tolerance(self) -> float:
        """How far from the target counts as on it: 5 %, or 2 operations a second (C27: one bound for everything)."""
        return max(2.0, 0.05 * self.target_qps)


class Queueing(StrEnum):
    """Which sessions that wait for other sessions in the server make a level unstable."""

    AUTO = "auto"  #: locks; the server's own short locks (latches, group commit) once throughput stops growing with them
    LOCKS = "locks"  #: only those that wait for a lock another transaction holds
    ALL = "all"  #: all of them, however much is done meanwhile
    OFF = "off"  #: none


@dataclass(frozen=True, slots=True, kw_only=True)
class FindMaxPlan:
    """How the most is searched for."""

    start_connections: int = 5
    connections_increment: int = 10
    step_duration: timedelta = timedelta(seconds=30)
    settle: timedelta = timedelta(seconds=2)  #: from a step's start; what is measured in it does not count
    qps_stability_pct: float = 5.0
    latency_stability_pct: float = 20.0
    max_error_rate_pct: float = 1.0
    queueing: Queueing = Queueing.AUTO
    max_waiting_pct: float = 10.0  #: of the connections, on average over a step; one session may always wait
    bisect: bool = True  #: go on to the knee between the last stable level and the first unstable one
    min_operations: int = 20  #: a step with fewer is repeated once (C25)
    most_looks: int = 5  #: at one level, however much its figures scatter; a quiet server needs one or two


class GuardrailMode(StrEnum):
    """What a crossed threshold means."""

    SOFT = "soft"  #: back off, scale out, degrade; fail only as a last resort
    HARD = "hard"  #: any worker over it fails the run
    WARN = "warn"  #: say so and go on (what FIXED does unless told otherwise, C34)


class FailThreshold(StrEnum):
    """How many workers must be over before the run fails."""

    ALL = "all"
    MAJORITY = "majority"
    ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrails:
    """What workers' hosts may be put to."""

    enabled: bool = True
    max_cpu_percent: float = 80.0
    max_memory_percent: float = 85.0
    mode: GuardrailMode = GuardrailMode.SOFT
    back_off_percent: float = 20.0
    act_patience: int = 2  #: intervals over before a worker is backed off
    patience_intervals: int = 3  #: intervals over before the run fails
    fail_threshold: FailThreshold = FailThreshold.ALL
    interval: timedelta = timedelta(seconds=5)  #: between two looks


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A service level one kind of operation, or all of them together, shall keep. None: no limit."""

    p95_ms: float | None = None
    p99_ms: float | None = None
    max_error_pct: float | None = None
    min_availability_pct: float | None = None  #: of the measured seconds, in which an operation succeeded; all kinds together


class OnWorkerLost(StrEnum):
    """What a lost worker means for its run."""

    FAIL = "fail"
    TOLERATE = "tolerate"  #: up to so many
    REPLACE = "replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPolicy:
    """``fail``, ``tolerate:n`` or ``replace``."""

    action: OnWorkerLost = OnWorkerLost.FAIL
    tolerated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What an hour costs, in whatever money the user counts."""

    worker_hour: float | None = None
    target_hour: float | None = None
    currency: str = "USD"


ALL_KINDS = ""  #: the key of the objective for all kinds together


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """Everything the orchestrator decides by."""

    load_mode: LoadMode = LoadMode.CONCURRENCY
    connections: int | None = 10  #: CONCURRENCY: in all; else a worker's ceiling; None: none was set
    warmup: timedelta = timedelta(seconds=30)
    duration: timedelta = timedelta(seconds=300)  #: find-max takes as long as it takes
    ramp: timedelta = timedelta()  #: over which a change of target is spread
    scaling: Scaling = field(default_factory=Scaling)
    qps: QpsPlan = field(default_factory=QpsPlan)
    find_max: FindMaxPlan = field(default_factory=FindMaxPlan)
    guardrails: Guardrails = field(default_factory=Guardrails)
    objectives: Mapping[str, Objective] = field(default_factory=dict)  #: by kind; ALL_KINDS for all together
    on_worker_lost: LostPolicy = field(default_factory=LostPolicy)
    partitions: int = 1  #: of sharded keys: a worker asks for those of its slot modulo this
    prices: Prices = field(default_factory=Prices)
