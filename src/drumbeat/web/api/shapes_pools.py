"""Request and response models of pools and jobs."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue

from drumbeat.client import Mode
from drumbeat.core.job import AttemptOutcome, JobStatus
from drumbeat.core.pool import PoolKind
from drumbeat.web.api.shapes import LARGEST_INT, Moment, RequestBody, Seconds, Shape
from drumbeat.web.api.shapes_runs import WorkerShape

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^/\\\x00-\x1f\x7f]+$")]
Duration = Annotated[float, Field(ge=0, le=315_360_000, description="Seconds.")]
Positive = Annotated[float, Field(gt=0, le=315_360_000, description="Seconds.")]
Count = Annotated[int, Field(ge=1, le=LARGEST_INT)]
Key = Annotated[str, Field(min_length=1, max_length=200)]


def _before_9000(moment: datetime) -> datetime:
    if moment.year >= 9000:
        raise ValueError("expected a time before the year 9000")
    return moment


class NewPool(RequestBody):
    """A job pool to create. The handlers of its workers are set where the workers are started, not here."""

    pool_id: Name
    mode: Mode | None = Field(default=None, description="When the workers of this pool stop.")
    concurrency: Annotated[int, Field(ge=1, le=10_000)] | None = None
    capabilities: Annotated[list[Key], Field(max_length=100)] | None = None
    lease: Positive | None = None
    timeout: Positive | None = None
    max_workers: Annotated[int, Field(ge=0, le=100_000)] | None = None


class PoolShape(Shape):
    """A pool."""

    pool_id: str
    kind: PoolKind
    policy: dict[str, Any]
    paused_until: datetime | None
    created_at: datetime | None


class Counts(Shape):
    """Jobs by state. Done, poisoned and cancelled jobs are counted exactly; the other counts stop at 10,000."""

    ready: int
    delayed: int
    pending: int
    claimed: int
    done: int
    poisoned: int
    cancelled: int
    oldest_ready: datetime | None


class PoolStanding(Shape):
    """The state of a job pool."""

    pool: PoolShape
    paused: bool
    jobs: Counts
    oldest_waits: Seconds | None
    unhandled: dict[str, int]
    no_handler: str | None
    trouble: str | None
    workers: list[WorkerShape]
    now: datetime


class Pause(RequestBody):
    """How long to pause; without seconds, until the pool is resumed."""

    seconds: Positive | None = None


class BackoffBody(RequestBody):
    """Delay before a retry: first * factor^(failures - 1) seconds, at most ``most``, plus or minus the share ``jitter``."""

    first: Duration = 1
    factor: Annotated[float, Field(ge=1, le=1000)] = 2
    most: Duration = 600
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.1


class Rate(RequestBody):
    """A rate limit: ``count`` per ``per`` seconds."""

    count: Count
    per: Positive


class JobOptions(RequestBody):
    """Options of a job."""

    type: Annotated[str, Field(max_length=200)] = ""
    priority: Annotated[int, Field(ge=-LARGEST_INT, le=LARGEST_INT)] = 0
    delay: Duration | None = None
    run_at: Annotated[Moment, AfterValidator(_before_9000)] | None = None
    max_attempts: Count | None = None
    max_crashes: Count | None = None
    backoff: BackoffBody | None = None
    timeout: Positive | None = None
    group: Key | None = None
    group_limit: Count | None = None
    group_rate: Rate | None = None
    capability: Key | None = None


class JobToPush(JobOptions):
    """A job to push."""

    payload: JsonValue
    job_id: Key | None = Field(default=None, description="Pushing it again has no effect, until retention deletes the job.")
    unique_key: Key | None = Field(default=None, description="While a job with this key is unfinished, its id is returned.")


class NewJobs(RequestBody):
    """Jobs to push: all of them, or none on an error."""

    jobs: Annotated[list[JobToPush], Field(min_length=1, max_length=10_000)]


class JobsNamed(RequestBody):
    """Jobs by id."""

    job_ids: Annotated[list[Key], Field(min_length=1, max_length=1000)]


class JobsToRequeue(RequestBody):
    """Jobs by id; without ids, all poisoned jobs of the pool."""

    job_ids: Annotated[list[Key], Field(max_length=1000)] | None = None


class Pushed(Shape):
    """The ids of the jobs, in order."""

    job_ids: list[str]


class JobShape(Shape):
    """A job."""

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


class AttemptShape(Shape):
    """One attempt at a job."""

    n: int
    worker_id: str
    worker_pool: str
    started_at: datetime
    ended_at: datetime | None
    outcome: AttemptOutcome | None
    error: str | None


class WholeJob(Shape):
    """A job with its attempts."""

    job: JobShape
    attempts: list[AttemptShape]


class ReasonShape(Shape):
    """One reason why a job does not run."""

    why: str
    says: str
    until: datetime | None


class JobExplained(Shape):
    """Why a job is not running, or how it ended."""

    job_id: str
    status: JobStatus
    why: str
    reasons: list[ReasonShape]
    history: list[str]
