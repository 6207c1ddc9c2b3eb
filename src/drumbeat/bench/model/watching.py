"""Data for the live view of a run: current state, time series and decisions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from drumbeat.bench.model.figures import Figures
from drumbeat.bench.model.plan import RunPlan
from drumbeat.bench.model.record import DecisionRecord, FailureExample
from drumbeat.bench.model.verdict import RunJudgement
from drumbeat.core.downsample import Point as Point
from drumbeat.core.log import Log
from drumbeat.core.run import Result, Run, Step
from drumbeat.core.worker import Health, Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A phase or an outage of a run, in seconds since the run's start."""

    name: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """A run's time series for charts, reduced to the minimum and maximum of each time slice."""

    seconds: float = 0.0  #: how long the time series are
    phases: tuple[Stretch, ...] = ()
    outages: tuple[Stretch, ...] = ()  #: periods in which no operation succeeded
    series: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSnapshot:
    """One worker, its health, and the figures of its last interval."""

    worker: Worker
    health: Health  #: LOST also if the worker has failed
    silence: timedelta
    qps: float | None = None  #: operations per second; None: no recent measurements
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    reads: int = 0
    writes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveStatus:
    """One service level objective, the measured value, and whether that value meets the objective."""

    kind: str  #: kind of operation, or ALL_KINDS
    measure: str  #: what is limited: p95_ms, p99_ms, error_pct or availability_pct
    limit: float
    found: float | None
    standing: str  #: ok, near (the limit), over, under or not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSnapshot:
    """How many sessions the database under test had over time, and for which events they waited."""

    series: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    waits: Mapping[str, int] = field(default_factory=dict)  #: how often a session waited for each event; most frequent first


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """A snapshot of a run for the live view. ``logs`` has only the lines since the previous snapshot."""

    run: Run
    plan: RunPlan
    now: datetime  #: the time of the store's clock
    workers: tuple[WorkerSnapshot, ...] = ()
    figures: Figures | None = None  #: measurements of the last few seconds; None once the run has ended
    reads: int | None = None  #: read operations so far; None while older samples are being loaded
    writes: int | None = None
    failed_connects: int = 0  #: in the measurement so far; fewer while older samples are being loaded
    by_kind: Mapping[str, float] = field(default_factory=dict)  #: operations per second of each kind
    steps: tuple[Step, ...] = ()
    objectives: tuple[ObjectiveStatus, ...] = ()
    judgement: RunJudgement = field(default_factory=RunJudgement)
    results: tuple[Result, ...] = ()  #: only once the run has ended
    summary: tuple[str, ...] = ()  #: the run in a few sentences, once it has ended
    decisions: tuple[DecisionRecord, ...] = ()  #: in order of time
    logs: tuple[Log, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeries:
    """The parts of a run that take long to read (time series, decisions, failures). Until ``complete``, some are not loaded."""

    curves: Curves = field(default_factory=Curves)
    server: ServerSnapshot = field(default_factory=ServerSnapshot)
    decisions: tuple[DecisionRecord, ...] = ()  #: in order of time
    failures: tuple[FailureExample, ...] = ()
    complete: bool = False  #: whether everything up to now is loaded
