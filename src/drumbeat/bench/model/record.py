"""The record of a run, read from the store for reports and comparisons: measurements, decisions and result."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import sqrt
from typing import Any

from drumbeat.bench.model.plan import ALL_KINDS, RunPlan
from drumbeat.core.histogram import Histogram, bucket_bounds
from drumbeat.core.repeats import Repeated, collapsed
from drumbeat.core.run import RUN_ENDED, Result, Run, Step, error_rate
from drumbeat.core.worker import WorkerId, WorkerStatus

_PERCENTS = (50.0, 90.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The latency figures of a histogram, in milliseconds. None: no data."""

    count: int = 0
    mean_ms: float | None = None
    least_ms: float | None = None
    greatest_ms: float | None = None
    stddev_ms: float | None = None  #: computed from the buckets, so exact to about 1 %
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
    """Totals of a group of operations. ``operations`` includes failed ones; latencies are only of successful ones."""

    operations: int = 0
    errors: int = 0
    reads: int = 0
    seconds: float = 0.0
    latency: Latency = field(default_factory=Latency)
    histogram: bytes = b""  #: the merged latency histogram, as bytes; empty: no data
    failed_connects: int = 0  #: only counted for all kinds together

    @property
    def qps(self) -> float:
        return self.operations / self.seconds if self.seconds else 0.0

    @property
    def error_rate(self) -> float:
        return error_rate(self.operations, self.errors, self.failed_connects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """The measurements of one second of a run, over all workers. A sample that overlaps two seconds is split between them."""

    offset: int  #: seconds since the record's origin
    phase: str | None = None
    operations: float = 0.0
    errors: float = 0.0
    mean_ms: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    histogram: bytes = b""  #: latencies of the samples with their middle in this second
    held: float = 0.0  #: open connections
    target: float = 0.0
    cpu_percent: float | None = None  #: average CPU use of the workers' hosts
    memory_percent: float | None = None
    workers: int = 0
    covered: float = 1.0  #: share of this second for which the workers reported data
    failed_connects: int = 0
    client_limited: bool = False  #: whether a worker, and not the database, limited the load
    errors_by_kind: Mapping[str, int] = field(default_factory=dict)
    errors_by_class: Mapping[str, int] = field(default_factory=dict)  #: by ErrorClass: CONNECTION, QUERY_TIMEOUT …

    @property
    def qps(self) -> float:
        return self.operations


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSecond:
    """The measurements of one worker in one interval of about a second."""

    offset: float  #: end of the interval, in seconds since the run's start
    qps: float = 0.0
    p95_ms: float | None = None
    held: int = 0
    target: int = 0
    cpu_percent: float | None = None
    memory_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """What is recorded about one worker of a run: identity, totals and time series."""

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
    meta: Mapping[str, Any] = field(default_factory=dict)  #: details from the worker's row in the store
    extra: Mapping[str, Any] = field(default_factory=dict)  #: the custom metrics of the worker's result


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """A decision of the orchestrator, or an event: when, what and why."""

    at: datetime
    offset: float
    what: str
    reason: str
    error: str | None = None  #: why the decision could not be carried out
    times: int = 1  #: how often it was repeated in a row; ``at`` is the first time


def without_repeats(decisions: Iterable[DecisionRecord]) -> tuple[DecisionRecord, ...]:
    """Merge equal consecutive decisions into one, and add to its reason how often the decision was made."""
    merged = collapsed(decisions, lambda each: (each.what, each.reason, each.error), lambda each: each.at)
    return tuple(_counted(each) for each in merged)


def _counted(found: Repeated[DecisionRecord]) -> DecisionRecord:
    if found.times == 1:
        return found.first
    seconds = (found.last_at - found.first.at).total_seconds()
    often = f"({found.times} times in {seconds:.0f} s)"
    return replace(found.first, times=found.times, reason=f"{found.first.reason} {often}".strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSecond:
    """How many sessions the database had at one moment, and what they waited for."""

    offset: float
    sessions: int | None = None
    active: int | None = None
    waiting: int | None = None
    lock_waits: int | None = None
    wait_events: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRecord:
    """The measurements of one phase of a run. Only MEASUREMENT is exact; others can include operations of the phase before."""

    name: str
    began: float  #: seconds since the run's start, like ``ended``
    ended: float
    whole: Measured = field(default_factory=Measured)
    kinds: Mapping[str, Measured] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureExample:
    """One failed operation, as an example of an error class."""

    kind: str
    error_class: str
    sqlstate: str
    message: str
    sql: str = ""
    worker_id: WorkerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunErrors:
    """The errors of a run: counts by kind, class and second, and examples."""

    operations: int = 0  #: only in phase MEASUREMENT, like ``errors`` and ``failed_connects``
    errors: int = 0
    failed_connects: int = 0
    by_kind: Mapping[str, int] = field(default_factory=dict)  #: errors of all phases; the fields below cover all phases too
    by_class: Mapping[str, int] = field(default_factory=dict)
    by_second: Mapping[int, int] = field(default_factory=dict)
    examples: tuple[FailureExample, ...] = ()

    @property
    def error_rate(self) -> float:
        return error_rate(self.operations, self.errors, self.failed_connects)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Everything that reports show about one run: plan, results, time series, workers, decisions and failures."""

    run: Run
    plan: RunPlan
    origin: datetime | None = None  #: the time from which offsets count; None: the run never began
    ended: datetime | None = None  #: the end of the run; if it has not ended, when it was read
    results: tuple[Result, ...] = ()
    totals: Mapping[str, Measured] = field(default_factory=dict)  #: phase MEASUREMENT, by kind of operation or ALL_KINDS
    steps: tuple[Step, ...] = ()
    timeline: tuple[Second, ...] = ()
    workers: tuple[WorkerRecord, ...] = ()
    decisions: tuple[DecisionRecord, ...] = ()
    server: tuple[ServerSecond, ...] = ()
    phases: tuple[PhaseRecord, ...] = ()
    failures: tuple[FailureExample, ...] = ()
    notes: tuple[str, ...] = ()  #: remarks for the reader
    summary: tuple[str, ...] = ()  #: the run in a few sentences; filled in for reports

    @property
    def whole(self) -> Measured:
        return self.totals.get(ALL_KINDS) or Measured()

    @property
    def kinds(self) -> Mapping[str, Measured]:
        return {kind: measured for kind, measured in self.totals.items() if kind != ALL_KINDS}

    @property
    def result(self) -> Result | None:
        """Return the result row that covers all workers and all kinds of operation; None if there is none."""
        return next((row for row in self.results if row.worker_id is None and row.kind is None), None)

    @property
    def stored_metrics(self) -> Mapping[str, Any]:
        """Return the custom metrics of an ended run's result; empty if the run has not ended.

        Prefer them to figures computed from samples, workers and beats, because these rows may have been deleted since."""
        return self.result.custom_metrics if self.result and self.run.status in RUN_ENDED else {}

    @property
    def find_max_result(self) -> Mapping[str, Any]:
        return (self.result.find_max_result if self.result else None) or {}

    @property
    def slowest(self) -> tuple[float | None, float | None]:
        """The highest p95 latency and the highest p99 latency of any worker, in milliseconds; None if no worker has any."""
        p95 = [p for worker in self.workers if (p := worker.measured.latency.p95_ms) is not None]
        p99 = [p for worker in self.workers if (p := worker.measured.latency.p99_ms) is not None]
        return max(p95, default=None), max(p99, default=None)

    @property
    def client_limited(self) -> bool:
        """Whether the workers, not the database, limited the load in more than a tenth of the measured seconds."""
        if (stored := self.stored_metrics.get("client_limited")) is not None:
            return bool(stored)
        measured = [second for second in self.timeline if second.phase == "MEASUREMENT"]
        return sum(second.client_limited for second in measured) > 0.1 * len(measured) if measured else False
