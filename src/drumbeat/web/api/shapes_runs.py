"""The shapes of runs, and of what is measured and decided in them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue

from drumbeat.bench.model import Latency, LoadMode, RunVerdict
from drumbeat.core.histogram import Histogram
from drumbeat.core.run import RunStatus, StepType
from drumbeat.core.worker import Health, WorkerStatus
from drumbeat.web.api.shapes import RequestBody, Seconds, Shape, Text

Document = Annotated[
    dict[str, JsonValue], Field(description="A template's document; its schema is at /api/v1/templates/schema.")
]
Settings = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=200)], JsonValue],
    Field(max_length=100, description="Settings put into it, by path: {'scaling.max_workers': 4}."),
]


class NewRun(RequestBody):
    """A run to be made, from a kept template or from a document."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"template": "kept", "settings": {"concurrent_connections": 4}}]})

    template: Text | None = Field(default=None, description="A template's name or id.")
    document: Document | None = None
    settings: Settings = Field(default_factory=dict)
    start: bool = Field(default=False, description="Start it at once.")


class Rerun(RequestBody):
    """A run like another, with some settings changed."""

    settings: Settings = Field(default_factory=dict)
    start: bool = False


class RunShape(Shape):
    """A run."""

    run_id: str
    name: str
    status: RunStatus
    phase: str | None
    template_id: str | None
    completion_reason: str | None
    expected_workers: int
    operations: int
    errors: int
    qps: float
    verdict: RunVerdict = Field(default=RunVerdict.PENDING, description="Whether it was a success; PENDING: it has not ended.")
    verdict_reason: str = Field(default="", description="Which objectives were missed, or why it failed.")
    is_orphan: bool = Field(default=False, description="It is under way, and no orchestrator leads it.")
    created_at: datetime | None
    updated_at: datetime | None
    started_at: datetime | None
    warmup_started_at: datetime | None
    warmup_ended_at: datetime | None
    ended_at: datetime | None


class WholeRun(RunShape):
    """A run with its configuration and its controller's state."""

    config: dict[str, Any]
    controller_state: dict[str, Any]
    custom_metrics: dict[str, Any]


class RunStanding(Shape):
    """How a run stands now."""

    run: RunShape
    led_by: str | None = Field(description="Who orchestrates it; null: nobody does now.")
    is_orphan: bool = Field(description="It is under way, and no orchestrator leads it.")
    verdict: RunVerdict = Field(description="Whether it was a success; PENDING: it has not ended.")
    verdict_reason: str = Field(description="Which objectives were missed, or why it failed.")
    workers: dict[str, int] = Field(description="Workers by state.")


class PhaseShape(Shape):
    """A phase, and how long it takes; null: as long as it takes."""

    phase: str
    duration: Seconds | None


class PreflightShape(Shape):
    """What a run would start, and what to beware of."""

    load_mode: LoadMode
    workers: int
    most_workers: int | None
    connections: list[int]
    most_connections: int | None
    total_connections: int
    cap: int
    phases: list[PhaseShape]
    estimated_cost: float | None
    currency: str
    warnings: list[str]
    errors: list[str]
    can_proceed: bool


class RunMade(Shape):
    """A new run, and what it will start."""

    run: RunShape
    preflight: PreflightShape


def _latency(value: Any) -> Any:
    return Latency.of(value) if isinstance(value, Histogram) else value


class LatencyShape(Shape):
    """Latencies in milliseconds; null: nothing was measured."""

    count: int
    mean_ms: float | None
    least_ms: float | None
    greatest_ms: float | None
    p50_ms: float | None
    p90_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    p999_ms: float | None


FromHistogram = Annotated[LatencyShape, BeforeValidator(_latency)]


class ResultShape(Shape):
    """What a run came to: whole, by worker, by kind of operation."""

    worker_id: str | None
    kind: str | None
    status: RunStatus
    connections: int | None
    operations: int
    reads: int
    writes: int
    errors: int
    qps: float | None
    latency: FromHistogram
    find_max_result: dict[str, Any] | None
    failure_reason: str | None
    enrichment_status: str | None
    enrichment_error: str | None
    custom_metrics: dict[str, Any]
    started_at: datetime | None
    ended_at: datetime | None


class StepShape(Shape):
    """A controller's decision, with the window it was measured in."""

    type: StepType
    n: int
    from_target: int | None
    to_target: int
    direction: str | None
    started_at: datetime
    ended_at: datetime | None
    operations: int
    errors: int
    error_rate: float
    qps: float | None
    target_qps: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    qps_vs_prior: float | None
    p95_vs_baseline: float | None
    queue_detected: bool | None
    outcome: str | None
    reason: str | None
    is_probe: bool


class Interval(Shape):
    """Some seconds of a run, over all its workers."""

    offset: int = Field(description="Seconds since the run's start.")
    seconds: int
    phase: str | None
    qps: float
    errors: float
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    connections: float
    target: float
    cpu_percent: float | None
    memory_percent: float | None
    workers: int


class Series(Shape):
    """A run's course, thinned to at most as many points as were asked for."""

    origin: datetime | None
    seconds: int = Field(description="How many seconds one point stands for.")
    points: list[Interval]


class DecisionShape(Shape):
    """What was decided or befell, and why."""

    at: datetime
    offset: float
    what: str
    reason: str
    error: str | None
    times: int = Field(description="How often it was decided in a row; at is the first time.")


class FailureShape(Shape):
    """One failed operation, as an example of its class."""

    kind: str
    error_class: str
    sqlstate: str
    message: str
    sql: str
    worker_id: str | None


class ErrorsShape(Shape):
    """A run's errors: how many, of which kinds of operation, when, and examples."""

    operations: int
    errors: int
    error_rate: float
    by_kind: dict[str, int]
    by_class: dict[str, int] = Field(description="CONNECTION, QUERY_TIMEOUT, DATABASE_ERROR …")
    by_second: dict[int, int] = Field(description="Seconds since the run's start in which operations failed.")
    examples: list[FailureShape]


class ExecutionShape(Shape):
    """One operation."""

    worker_id: str
    n: int
    connection: int
    kind: str
    started_at: datetime
    duration_ms: float
    ok: bool
    error_class: str | None
    error: str | None
    rows: int | None
    warmup: bool
    query_text: str | None


class LoadedShape(Shape):
    """What was copied into the store, and which files are on other hosts."""

    files: int
    rows: int
    elsewhere: list[str]


class Enriched(Shape):
    """Whether a run's result was completed with its database's own totals."""

    status: str | None
    error: str | None


class WorkerShape(Shape):
    """A worker, and how it is."""

    worker_id: str
    slot: int
    status: WorkerStatus
    terminating: bool = Field(
        default=False, description="Whether it lives and was told to leave; its status may not say so yet."
    )
    health: Health | None = Field(description="Null once it has ended.")
    phase: str | None
    host: str | None
    pid: int | None
    provider: str | None
    provider_ref: str | None
    capabilities: list[str]
    target: int
    applied_target: int
    active: int
    operations: int
    errors: int
    cpu_percent: float | None
    memory_percent: float | None
    gpu: dict[str, Any] | None
    heartbeat_at: datetime | None
    created_at: datetime | None
    started_at: datetime | None
    ready_at: datetime | None
    drain_deadline: datetime | None
    ended_at: datetime | None
    exit_code: int | None
    error: str | None
    meta: dict[str, Any]


class EventShape(Shape):
    """What workers were told, or what became of one."""

    sequence_id: int
    type: str
    scope: str
    worker_id: str | None
    slot: int | None
    payload: dict[str, Any]
    created_at: datetime


class BeatShape(Shape):
    """One pass of a control loop: what it did, or why nothing."""

    n: int
    at: datetime
    owner: str
    epoch: int
    duration: Seconds
    actions: list[dict[str, Any]]
    why_not: str | None
    error: str | None
    summary: dict[str, Any]


class WholeBeat(BeatShape):
    """A beat with what it saw."""

    view: dict[str, Any] | None


class LogShape(Shape):
    """A line of a worker's log."""

    log_id: int
    at: datetime
    level: str
    logger: str
    message: str
    worker_id: str | None
    details: dict[str, Any] | None


class SampleShape(Shape):
    """What one worker measured in one interval."""

    worker_id: str
    n: int
    at: datetime
    interval: Seconds
    phase: str | None
    operations: int
    reads: int
    writes: int
    errors: int
    qps: float
    latency: FromHistogram
    active: int
    target: int
    cpu_percent: float | None
    memory_percent: float | None


class TrendRun(Shape):
    """One run of a trend."""

    run_id: str
    created_at: datetime | None
    verdict: RunVerdict
    figures: dict[str, float | None] = Field(description="By name: operations/s, p95 (ms) and so on.")


class TrendFigure(Shape):
    """What one figure did from run to run."""

    runs: int
    median: float
    recent: float = Field(description="The mean, each older run weighing 0.8 of the next.")
    variation: float | None = Field(description="The coefficient of variation; null: of one run.")
    slope: float = Field(description="Of the straight line through the values, from one run to the next.")
    r_squared: float
    steadiness: str = Field(description="stable, moderate, unstable or unknown.")


class RunTrend(Shape):
    """How the figures of a run and of those of its kind before it went, oldest first."""

    runs: list[TrendRun]
    trends: dict[str, TrendFigure] = Field(description="By figure.")


class Regression(Shape):
    """Whether a run is worse than another."""

    verdict: Literal["passed", "run_failed", "objectives_missed", "regressed", "inconclusive"]
    exit_code: int = Field(description="What drumbeat bench regress would end with.")
    comparison: list[dict[str, Any]] = Field(
        description="As at /api/v1/compare; nothing where there is nothing to compare with."
    )
