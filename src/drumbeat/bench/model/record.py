"""A run as it is read back: what it measured, decided and came to, on one clock. Reports and comparisons begin with it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import sqrt
from typing import Any

from drumbeat.bench.model.plan import ALL_KINDS, RunPlan
from drumbeat.core.histogram import Histogram, bucket_bounds
from drumbeat.core.repeats import Repeated, collapsed
from drumbeat.core.run import Result, Run, Step
from drumbeat.core.worker import WorkerId, WorkerStatus

_PERCENTS = (50.0, 90.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A histogram in milliseconds, for people. None: nothing was measured."""

    count: int = 0
    mean_ms: float | None = None
    least_ms: float | None = None
    greatest_ms: float | None = None
    stddev_ms: float | None = None  #: from the buckets, so within their 1 %
    p50_ms: float | None = None
    p90_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None

    @classmethod
    def of(cls, histogram: Histogram) -> "Latency":
        count = histogram.count
        if not count or histogram.least is None or histogram.greatest is None:
            return cls()
        p50, p90, p95, p99, p999 = (None if ns is None else ns / 1e6 for ns in histogram.percentiles_ns(_PERCENTS))
        return cls(
            count=count,
            mean_ms=histogram.total / count / 1e6,
            least_ms=histogram.least / 1e6,
            greatest_ms=histogram.greatest / 1e6,
            stddev_ms=_spread(histogram, count) / 1e6,
            p50_ms=p50,
            p90_ms=p90,
            p95_ms=p95,
            p99_ms=p99,
            p999_ms=p999,
        )


def _spread(histogram: Histogram, count: int) -> float:
    mean = histogram.total / count
    squares = sum(n * (sum(bucket_bounds(bucket)) / 2 - mean) ** 2 for bucket, n in histogram.buckets())
    return sqrt(squares / count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What some operations came to. Failed ones are among ``operations``; latencies are of those that went well."""

    operations: int = 0
    errors: int = 0
    reads: int = 0
    seconds: float = 0.0
    latency: Latency = field(default_factory=Latency)
    histogram: bytes = b""  #: the exact, merged one, as Histogram.to_bytes wrote it; empty: none
    failed_connects: int = 0  #: attempts to open a connection, of all kinds together

    @property
    def qps(self) -> float:
        return self.operations / self.seconds if self.seconds else 0.0

    @property
    def error_rate(self) -> float:
        """Errors as a share of operations; an attempt to connect that failed is an operation that could not be sent."""
        tried = self.operations + self.failed_connects
        return (self.errors + self.failed_connects) / tried if tried else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """One second of a run, over all its workers. An interval that lies in two seconds counts in both, by its shares."""

    offset: int  #: since the record's origin
    phase: str | None = None
    operations: float = 0.0
    errors: float = 0.0
    mean_ms: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    histogram: bytes = b""  #: of the intervals whose middle is in this second
    held: float = 0.0  #: connections
    target: float = 0.0
    cpu_percent: float | None = None  #: of the workers' hosts, on average
    memory_percent: float | None = None
    workers: int = 0
    covered: float = 1.0  #: how much of the second its workers tell of
    failed_connects: int = 0  #: attempts to open a connection
    client_limited: bool = False  #: a client was its own limit
    errors_by_kind: Mapping[str, int] = field(default_factory=dict)
    errors_by_class: Mapping[str, int] = field(default_factory=dict)  #: CONNECTION, QUERY_TIMEOUT, DATABASE_ERROR …

    @property
    def qps(self) -> float:
        return self.operations


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSecond:
    """One interval of one worker."""

    offset: float  #: of its end
    qps: float = 0.0
    p95_ms: float | None = None
    held: int = 0
    target: int = 0
    cpu_percent: float | None = None
    memory_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """One worker: who it was, what it measured, and its series."""

    worker_id: WorkerId
    slot: int = 0
    status: WorkerStatus | None = None
    host: str | None = None
    began: datetime | None = None
    ended: datetime | None = None
    error: str | None = None
    measured: Measured = field(default_factory=Measured)
    series: tuple[WorkerSecond, ...] = ()
    client_limited_seconds: int = 0
    late_seconds: int = 0  #: intervals in which operations were sent late or waited for a connection
    meta: Mapping[str, Any] = field(default_factory=dict)  #: its row's
    extra: Mapping[str, Any] = field(default_factory=dict)  #: its result's custom metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Something that was decided or befell: when, what, and why."""

    at: datetime
    offset: float
    what: str
    reason: str
    error: str | None = None  #: why it was not done
    times: int = 1  #: how often it was decided in a row; ``at`` is the first time


def without_repeats(decisions: Iterable[Decided]) -> tuple[Decided, ...]:
    """Decisions in order, each that was made again and again told once, with how often in its reason."""
    told = collapsed(decisions, lambda each: (each.what, each.reason, each.error), lambda each: each.at)
    return tuple(_counted(each) for each in told)


def _counted(found: Repeated[Decided]) -> Decided:
    if found.times == 1:
        return found.first
    seconds = (found.last_at - found.first.at).total_seconds()
    often = f"({found.times} times in {seconds:.0f} s)"
    return replace(found.first, times=found.times, reason=f"{found.first.reason} {often}".strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSecond:
    """What the database said of its sessions at one moment."""

    offset: float
    sessions: int | None = None
    active: int | None = None
    waiting: int | None = None
    lock_waits: int | None = None
    wait_events: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRecord:
    """One phase. MEASUREMENT counts as the totals do; others by samples: an interval belongs to the phase it ended in."""

    name: str
    began: float  #: offsets
    ended: float
    whole: Measured = field(default_factory=Measured)
    kinds: Mapping[str, Measured] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureExample:
    """One failed operation as an example of its class."""

    kind: str
    error_class: str
    sqlstate: str
    message: str
    sql: str = ""
    worker_id: WorkerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunErrors:
    """What went wrong in one run: how much of what, when, and examples."""

    operations: int = 0  #: of MEASUREMENT, as errors are
    errors: int = 0
    by_kind: Mapping[str, int] = field(default_factory=dict)  #: of all phases, as what follows
    by_class: Mapping[str, int] = field(default_factory=dict)
    by_second: Mapping[int, int] = field(default_factory=dict)
    examples: tuple[FailureExample, ...] = ()

    @property
    def error_rate(self) -> float:
        return self.errors / self.operations if self.operations else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Everything about one run."""

    run: Run
    plan: RunPlan
    origin: datetime | None = None  #: offset 0; None: it never began
    ended: datetime | None = None  #: its end, or when it was read
    results: tuple[Result, ...] = ()
    totals: Mapping[str, Measured] = field(default_factory=dict)  #: of MEASUREMENT, by kind; ALL_KINDS: all together
    steps: tuple[Step, ...] = ()
    timeline: tuple[Second, ...] = ()
    workers: tuple[WorkerRecord, ...] = ()
    decisions: tuple[Decided, ...] = ()
    server: tuple[ServerSecond, ...] = ()
    phases: tuple[PhaseRecord, ...] = ()
    failures: tuple[FailureExample, ...] = ()
    notes: tuple[str, ...] = ()  #: what a reader should know

    @property
    def whole(self) -> Measured:
        return self.totals.get(ALL_KINDS) or Measured()

    @property
    def kinds(self) -> Mapping[str, Measured]:
        return {kind: measured for kind, measured in self.totals.items() if kind != ALL_KINDS}

    @property
    def result(self) -> Result | None:
        """The row of the whole run."""
        return next((row for row in self.results if row.worker_id is None and row.kind is None), None)

    @property
    def find_max_result(self) -> Mapping[str, Any]:
        return (self.result.find_max_result if self.result else None) or {}

    @property
    def client_limited(self) -> bool:
        """Whether clients were the limit in more than a tenth of the measured seconds."""
        measured = [second for second in self.timeline if second.phase == "MEASUREMENT"]
        return sum(second.client_limited for second in measured) > 0.1 * len(measured) if measured else False
