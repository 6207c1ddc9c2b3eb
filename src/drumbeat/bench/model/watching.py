"""A run as whoever watches it sees it: what it does now, its course so far, and what was decided."""

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
    """One phase, or one outage, by offsets from the run's start."""

    name: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """A run's course, thinned for drawing: of each stretch of time the least and the greatest are kept."""

    seconds: float = 0.0  #: how far it goes
    phases: tuple[Stretch, ...] = ()
    outages: tuple[Stretch, ...] = ()  #: where no operation succeeded
    series: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSnapshot:
    """One worker, how it is, and what it did in its last interval."""

    worker: Worker
    health: Health  #: LOST also for one that ended badly
    silence: timedelta
    qps: float | None = None  #: None: it measured nothing lately
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    reads: int = 0
    writes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveStatus:
    """One objective and how it stands."""

    kind: str  #: ALL_KINDS: all together
    measure: str  #: p95_ms, p99_ms, error_pct, availability_pct
    limit: float
    found: float | None
    standing: str  #: ok, near, over, under, not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSnapshot:
    """What the database under test said of its sessions, and what they waited for in all."""

    series: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    waits: Mapping[str, int] = field(default_factory=dict)  #: times a session was seen to wait for it, the commonest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One look at a run. ``logs`` are those that are new since the last look."""

    run: Run
    plan: RunPlan
    now: datetime  #: by the store's clock
    workers: tuple[WorkerSnapshot, ...] = ()
    figures: Figures | None = None  #: of the last seconds; None once it has ended
    reads: int | None = None  #: so far; None while older samples are still being read
    writes: int | None = None
    by_kind: Mapping[str, float] = field(default_factory=dict)  #: operations a second
    steps: tuple[Step, ...] = ()
    objectives: tuple[ObjectiveStatus, ...] = ()
    judgement: RunJudgement = field(default_factory=RunJudgement)
    results: tuple[Result, ...] = ()  #: once it has ended
    decisions: tuple[Decided, ...] = ()  #: the newest last
    logs: tuple[Log, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeries:
    """What of a run takes long to read, as far as it has been read."""

    curves: Curves = field(default_factory=Curves)
    server: ServerSnapshot = field(default_factory=ServerSnapshot)
    decisions: tuple[Decided, ...] = ()  #: the newest last
    failures: tuple[FailureExample, ...] = ()
    complete: bool = False  #: whether everything up to now is in it
