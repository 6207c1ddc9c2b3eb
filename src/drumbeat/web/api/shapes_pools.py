"""Request and response models of pools and jobs."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue

from drumbeat.client import Mode
from drumbeat.core.job import AttemptOutcome, IfFailed, JobStatus
from drumbeat.core.job_step import StepKind
from drumbeat.core.pool import PoolKind
from drumbeat.web.api.shapes import LARGEST_INT, RequestBody, Seconds, Shape, Start
from drumbeat.web.api.shapes_runs import WorkerShape

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^/\\\x00-\x1f\x7f]+$")]
Duration = Annotated[float, Field(ge=0, le=315_360_000, description="Seconds.")]
Positive = Annotated[float, Field(gt=0, le=315_360_000, description="Seconds.")]
Count = Annotated[int, Field(ge=1, le=LARGEST_INT)]
Key = Annotated[str, Field(min_length=1, max_length=200)]


def _not_empty(job_ids: list[str]) -> list[str]:
    if not job_ids:
        raise ValueError("expected at least one job id, got none; leave job_ids out to requeue all poisoned jobs")
    return job_ids


class NewPool(RequestBody):
    """A job pool to create. Handlers are not set here, but where the workers are started."""

    pool_id: Name
    mode: Mode | None = Field(default=None, description="When the workers of this pool stop.")
    concurrency: Annotated[int, Field(ge=1, le=10_000, description="Jobs that a worker runs at once.")] | None = None
    capabilities: Annotated[list[Key], Field(max_length=100)] | None = None
    lease: Positive | None = Field(default=None, description="Seconds until the claim of a job expires if it is not renewed.")
    timeout: Positive | None = Field(default=None, description="Time limit of a job, in seconds.")
    max_workers: Annotated[int, Field(ge=0, le=100_000)] | None = None
    engine: Annotated[str, Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="The engine that runs the workers; with several (a,b), the first is preferred."
    )


class PoolShape(Shape):
    """A pool: a job queue with its workers, a fleet, or the workers of a benchmark run."""

    pool_id: str
    kind: PoolKind
    policy: dict[str, Any]
    paused_until: datetime | None
    created_at: datetime | None


class Counts(Shape):
    """Jobs by state. Done, poisoned and cancelled jobs are counted exactly; the other counts stop at 10,000."""

    ready: int
    delayed: int
    waiting: int
    pending: int
    claimed: int
    done: int
    poisoned: int
    cancelled: int
    oldest_ready: datetime | None


class PoolStanding(Shape):
    """The state of a job pool: job counts, live workers, and what keeps jobs waiting."""

    pool: PoolShape
    paused: bool
    paused_types: list[str] = Field(description="Job types that are paused while the others go on.")
    jobs: Counts
    oldest_waits: Seconds | None = Field(description="Seconds that the oldest ready job has waited.")
    unhandled: dict[str, int] = Field(description="Ready jobs by type, for types without a handler.")
    no_handler: str | None
    trouble: str | None = Field(description="Why no workers are started at the moment.")
    workers: list[WorkerShape]
    now: datetime


class Pause(RequestBody):
    """How long to pause; without seconds, until the pool is resumed. With types, only these job types, until resumed."""

    seconds: Positive | None = None
    types: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=1000)] | None = None


class Resumption(RequestBody):
    """The job types to resume; without types, the pool itself."""

    types: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=1000)] | None = None


class BackoffBody(RequestBody):
    """Delay before a retry: first * factor^(failures - 1) seconds, at most ``most``; jitter 0.1 varies it by up to ± 10 %."""

    first: Duration = 1
    factor: Annotated[float, Field(ge=1, le=1000)] = 2
    most: Duration = 600
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.1


class Rate(RequestBody):
    """A rate limit: ``count`` jobs per ``per`` seconds."""

    count: Count
    per: Positive


class JobOptions(RequestBody):
    """Options of a job: type, priority, start time, retries and limits."""

    type: Annotated[str, Field(max_length=200)] = ""
    priority: Annotated[int, Field(ge=-LARGEST_INT, le=LARGEST_INT)] = 0
    delay: Duration | None = None
    run_at: Start | None = None
    max_attempts: Count | None = None
    max_crashes: Count | None = None
    backoff: BackoffBody | None = None
    timeout: Positive | None = Field(default=None, description="Time limit of an attempt, in seconds.")
    group: Key | None = None
    group_limit: Count | None = None
    group_rate: Rate | None = None
    capability: Key | None = None


class JobToPush(JobOptions):
    """A job to push, with its payload and options."""

    payload: JsonValue
    job_id: Key | None = Field(default=None, description="Pushing this id again has no effect until the job is deleted.")
    unique_key: Key | None = Field(default=None, description="If an unfinished job has this key, its id is returned.")
    after: Annotated[list[Key], Field(max_length=10_000)] | None = Field(
        default=None, description="Ids of jobs, in any pool or in this request, that must be done first (parents)."
    )
    after_any: bool | None = Field(default=None, description="Wait only until one of the parents is done.")
    if_failed: IfFailed | None = Field(
        default=None, description="If a parent is poisoned or cancelled: wait (block), be cancelled (skip) or run."
    )
    workflow_id: Key | None = Field(default=None, description="Jobs of one workflow are counted and cancelled together.")


class NewJobs(RequestBody):
    """Jobs to push in one request. On an error, none of them is pushed."""

    jobs: Annotated[list[JobToPush], Field(min_length=1, max_length=10_000)]


class JobsNamed(RequestBody):
    """Ids of jobs."""

    job_ids: Annotated[list[Key], Field(min_length=1, max_length=1000)]


class JobsToRequeue(RequestBody):
    """Ids of the jobs to requeue, at least one; without ``job_ids``, all poisoned jobs of the pool."""

    job_ids: Annotated[list[Key], Field(max_length=1000), AfterValidator(_not_empty)] | None = Field(
        default=None, json_schema_extra={"minItems": 1}
    )


class Pushed(Shape):
    """Ids of the jobs that were pushed or requeued."""

    job_ids: list[str]


class JobShape(Shape):
    """A job with its state, options, lease and result."""

    job_id: str
    pool_id: str
    type: str
    status: JobStatus
    priority: int
    payload: Any
    result: Any
    attempts: int
    failures: int
    crashes: int
    suspicions: int
    max_attempts: int
    max_crashes: int
    timeout: Seconds | None
    unique_key: str | None
    group: str | None
    group_limit: int | None
    capability: str | None
    lease_owner: str | None
    lease_pool: str | None
    lease_until: datetime | None
    not_before: datetime | None
    cancel_requested: bool
    progress: float | None
    progress_note: str | None
    last_error: str | None
    created_at: datetime | None
    claimed_at: datetime | None
    begun_at: datetime | None
    finished_at: datetime | None
    workflow_id: str | None
    waits_for: int
    after_any: bool
    if_failed: IfFailed | None
    has_children: bool
    has_steps: bool
    events_sent: int


class AttemptShape(Shape):
    """One attempt to run a job: worker, times and outcome."""

    n: int
    worker_id: str
    worker_pool: str
    started_at: datetime
    ended_at: datetime | None
    outcome: AttemptOutcome | None
    error: str | None


class JobStepShape(Shape):
    """One durable step of a job, or an event that was sent to it (its position is negative)."""

    position: int
    name: str
    kind: StepKind
    result: Any
    error: str | None
    started_at: datetime
    finished_at: datetime | None
    until: datetime | None


class WholeJob(Shape):
    """A job with its attempts and durable steps."""

    job: JobShape
    attempts: list[AttemptShape]
    steps: list[JobStepShape]


class EventToSend(RequestBody):
    """An event for a job, which its handler gets from ``wait_for``."""

    name: Key
    value: JsonValue = None


class ReasonShape(Shape):
    """One reason why a job is not running."""

    why: str
    says: str
    until: datetime | None


class JobExplained(Shape):
    """Explains why a job is not running, or how it ended."""

    job_id: str
    status: JobStatus
    why: str
    reasons: list[ReasonShape]
    history: list[str]
    steps: list[str]
