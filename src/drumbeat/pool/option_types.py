"""The types of the options of a pool's methods and of a worker, for type checkers. Options are checked where they are read."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypedDict

from drumbeat.core.job import Backoff, IfFailed, JobStatus, RateLimit
from drumbeat.core.worker import Holder
from drumbeat.pool.worker.options import ExecutorKind, Mode

Duration = timedelta | float  #: a timedelta or seconds


class NewJobOptions(TypedDict, total=False):
    """Options of a push: the fields of NewJob."""

    type: str
    job_id: str | None
    priority: int
    delay: Duration | str
    run_at: datetime | str | None
    max_attempts: int
    max_crashes: int
    backoff: Backoff | Mapping[str, Duration]
    timeout: Duration | None
    unique_key: str | None
    group: str | None
    group_limit: int | None
    group_rate: RateLimit | Mapping[str, Duration] | None
    capability: str | None
    after: Sequence[str]
    after_any: bool
    if_failed: IfFailed | str
    workflow_id: str | None


class JobFilters(TypedDict, total=False):
    """Filters of a list of jobs."""

    statuses: Sequence[JobStatus | str] | None
    job_type: str | None
    group: str | None
    worker_id: str | None
    holder: Holder | None
    after: str | None
    limit: int | None


class ClaimOptions(TypedDict, total=False):
    """Options of a claim: who claims, and what it can run."""

    worker_id: str | None
    capabilities: Sequence[str]
    types: Sequence[str]


class NewPoolOptions(TypedDict, total=False):
    """Settings of a new pool besides its WorkPlan."""

    max_workers: int
    retention: str
    result_ttl: Duration | None


class WorkOptions(TypedDict, total=False):
    """Fields of WorkPlan, apart from the handlers."""

    mode: Mode | str
    executor: ExecutorKind | str
    concurrency: int
    capabilities: tuple[str, ...]
    lease: timedelta | None
    timeout: timedelta | None
    max_jobs: int | None
    max_memory_mb: int | None
    prefetch: int | None
    middleware: tuple[str, ...]
    gather: timedelta


class PoolChanges(WorkOptions, total=False):
    """Settings of a pool that ``update`` changes."""

    max_workers: int
    retention: str
    result_ttl: Duration | None
