"""Data for the live view of a run: current state, time series and decisions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from drumbeat.bench.model.figures import Figures
from drumbeat.bench.model.plan import RunPlan
from drumbeat.bench.model.record import Decided, FailureExample
from drumbeat.bench.model.verdict import RunJudgement
from drumbeat.core.log import Log
from drumbeat.core.run import Result, Run, Step
from drumbeat.core.worker import Health, Worker

Point = tuple[float, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A phase or an outage, as offsets from the run's start."""

    name: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """A run's time series, reduced for charts: the minimum and maximum of each time slice are kept."""

    seconds: float = 0.0  #: length
    phases: tuple[Stretch, ...] = ()
    outages: tuple[Stretch, ...] = ()  #: periods without a successful operation
    series: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSnapshot:
    """One worker, its health, and the figures of its last interval."""

    worker: Worker
    health: Health  #: LOST also for a worker that failed
    silence: timedelta
    qps: float | None = None  #: None: no recent measurements
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    reads: int = 0
    writes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveStatus:
    """One objective and its current status."""

    kind: str  #: ALL_KINDS: all kinds together
    measure: str  #: p95_ms, p99_ms, error_pct, availability_pct
    limit: float
    found: float | None
    standing: str  #: ok, near, over, under, not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSnapshot:
    """The sessions of the database under test over time, and their wait events."""

    series: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    waits: Mapping[str, int] = field(default_factory=dict)  #: how often a session waited for each event; most frequent first


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A snapshot of a run for the live view. ``logs`` are new since the last snapshot."""

    run: Run
    plan: RunPlan
    now: datetime  #: by the store's clock
    workers: tuple[WorkerSnapshot, ...] = ()
    figures: Figures | None = None  #: of the last few seconds; None once the run has ended
    reads: int | None = None  #: so far; None while older samples are being loaded
    writes: int | None = None
    by_kind: Mapping[str, float] = field(default_factory=dict)  #: operations per second
    steps: tuple[Step, ...] = ()
    objectives: tuple[ObjectiveStatus, ...] = ()
    judgement: RunJudgement = field(default_factory=RunJudgement)
    results: tuple[Result, ...] = ()  #: once the run has ended
    decisions: tuple[Decided, ...] = ()  #: the newest last
    logs: tuple[Log, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeries:
    """The parts of a run that take long to read, as far as they are loaded."""

    curves: Curves = field(default_factory=Curves)
    server: ServerSnapshot = field(default_factory=ServerSnapshot)
    decisions: tuple[Decided, ...] = ()  #: the newest last
    failures: tuple[FailureExample, ...] = ()
    complete: bool = False  #: whether everything up to now is loaded
