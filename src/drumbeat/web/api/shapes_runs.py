"""Request and response models of runs and their data."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue

from drumbeat.bench.model import Latency, LoadMode, RunVerdict
from drumbeat.core.histogram import Histogram
from drumbeat.core.run import RunStatus, StepType
from drumbeat.core.worker import Health, WorkerStatus
from drumbeat.web.api.shapes import RequestBody, Seconds, Shape, Text

Document = Annotated[dict[str, JsonValue], Field(description="A template document; its schema is at /api/v1/template-schema.")]
Settings = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=200)], JsonValue],
    Field(max_length=100, description="Settings to change in the document, by path: {'scaling.max_workers': 4}."),
]


RATE = "Failed operations and failed attempts to connect, as a share of all operations and these attempts, from 0 to 1."


class NewRun(RequestBody):
    """A run to create, from a stored template or from a document."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"template": "kept", "settings": {"concurrent_connections": 4}}]})

    template: Text | None = Field(default=None, description="Name or id of a template.")
    document: Document | None = None
    settings: Settings = Field(default_factory=dict)
    start: bool = Field(default=False, description="Start the run at once.")


class Rerun(RequestBody):
    """Settings to change in a new run that repeats an earlier run."""

    settings: Settings = Field(default_factory=dict)
    start: bool = False


class RunShape(Shape):
    """A benchmark run with its status, totals, verdict and times."""

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
    verdict: RunVerdict = Field(default=RunVerdict.PENDING, description="Whether the run passed; PENDING until it ends.")
    verdict_reason: str = Field(default="", description="Which objectives were missed, or why the run failed.")
    is_orphan: bool = Field(default=False, description="Whether the run is active without an orchestrator.")
    created_at: datetime | None
    updated_at: datetime | None
    started_at: datetime | None
    warmup_started_at: datetime | None
    warmup_ended_at: datetime | None
    ended_at: datetime | None


class ExplanationShape(Shape):
    """What a language model wrote about a run. It may be wrong."""

    text: str = Field(description="Plain text; not a fact of Drumbeat's.")
    model: str = Field(description="The language model that wrote it.")
    at: datetime
    unknown_numbers: list[str] = Field(description="Numbers in the text that are not among the figures the model was given.")
    shortened: bool = Field(description="Whether the end of the text was cut off.")
    label: str = Field(description="Who wrote the text and when, to show beside it.")


class WholeRun(RunShape):
    """A run with its configuration and the state of its controller."""

    summary: list[str] = Field(
        default_factory=list, description="The run in a few sentences, made from its figures; empty until it has ended."
    )
    explanation: ExplanationShape | None = Field(
        default=None, description="What a language model wrote about the run, if it was asked; see POST /runs/{run_id}/explain."
    )

    config: dict[str, Any]
    controller_state: dict[str, Any]
    custom_metrics: dict[str, Any]


class RunStanding(Shape):
    """The status of a run: orchestrator, verdict and worker counts."""

    run: RunShape
    led_by: str | None = Field(description="The orchestrator of the run; null if it has none now.")
    is_orphan: bool = Field(description="Whether the run is active without an orchestrator.")
    verdict: RunVerdict = Field(description="Whether the run passed; PENDING until it ends.")
    verdict_reason: str = Field(description="Which objectives were missed, or why the run failed.")
    workers: dict[str, int] = Field(description="Workers by state.")


class PhaseShape(Shape):
    """A phase of a run and its duration in seconds; null if it has no fixed duration."""

    phase: str
    duration: Seconds | None


class PreflightShape(Shape):
    """What a run would start: workers, connections, phases, cost and warnings."""

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
    """A new run, with a preview of what it will start."""

    run: RunShape
    preflight: PreflightShape


def _latency(value: Any) -> Any:
    return Latency.of(value) if isinstance(value, Histogram) else value


class LatencyShape(Shape):
    """Latencies in milliseconds; null if nothing was measured."""

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
    """A result of a run: of the whole run (worker_id and kind are null), of one worker, or of one kind of operation."""

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
    """A decision of the load controller, with the measurements it is based on."""

    type: StepType
    n: int
    from_target: int | None
    to_target: int
    direction: str | None
    started_at: datetime
    ended_at: datetime | None
    operations: int
    errors: int
    failed_connects: int
    error_rate: float = Field(description=RATE)
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
    """One point of a run's time series: measurements of all workers over one or more seconds."""

    offset: int = Field(description="Seconds since the start of the run.")
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
    """A run's time series, thinned to at most the requested number of points."""

    origin: datetime | None
    seconds: int = Field(description="Number of seconds per point.")
    points: list[Interval]


class DecisionShape(Shape):
    """A decision of a run's controllers or an event of the run, and its reason."""

    at: datetime
    offset: float
    what: str
    reason: str
    error: str | None
    times: int = Field(description="How often the same decision was taken in a row; `at` is the first time.")


class FailureShape(Shape):
    """One failed operation, as an example of its error class."""

    kind: str
    error_class: str
    sqlstate: str
    message: str
    sql: str
    worker_id: str | None


class ErrorsShape(Shape):
    """A run's errors: counts by kind, class and second, and examples."""

    operations: int
    errors: int
    failed_connects: int = Field(description="Failed attempts to connect during the measurement.")
    error_rate: float = Field(description=RATE)
    by_kind: dict[str, int]
    by_class: dict[str, int] = Field(description="Failed operations by error class, such as QUERY_TIMEOUT.")
    by_second: dict[int, int] = Field(description="Failed operations by second since the start of the run.")
    examples: list[FailureShape]


class ExecutionShape(Shape):
    """One operation that a worker ran on the database: its time, duration and outcome."""

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
    """How many files of recorded operations were read and how many new rows stored; `elsewhere`: files not on this host."""

    files: int
    rows: int
    elsewhere: list[str]


class Enriched(Shape):
    """Whether the database's own counters were added to a run's result, and if not, why."""

    status: str | None
    error: str | None


class WorkerShape(Shape):
    """A worker with its status, health, load and times."""

    worker_id: str
    slot: int
    status: WorkerStatus
    terminating: bool = Field(
        default=False, description="Whether the worker was asked to stop and is still alive; `status` may not show this yet."
    )
    health: Health | None = Field(description="Null once the worker has ended, and if it was not started.")
    not_started: str | None = Field(
        default=None, description="Why its engine did not start the worker; null if it did, or is starting it."
    )
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
    """A command to workers, or a change of a worker's state."""

    sequence_id: int
    type: str
    scope: str
    worker_id: str | None
    slot: int | None
    payload: dict[str, Any]
    created_at: datetime


class BeatShape(Shape):
    """One pass of a control loop: its actions, or why there were none."""

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
    """A beat (one pass of a control loop) with the state it was based on."""

    view: dict[str, Any] | None


class LogShape(Shape):
    """One line of a worker's log."""

    log_id: int
    at: datetime
    level: str
    logger: str
    message: str
    worker_id: str | None
    details: dict[str, Any] | None


class SampleShape(Shape):
    """The measurements of one worker in one interval."""

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
