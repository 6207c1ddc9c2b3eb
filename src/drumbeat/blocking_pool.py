"""The types of a pool without await. Written by tests/docs/blocking_types.py from the class Pool; do not edit it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol, Unpack

from drumbeat.core.job import Attempt, Job, JobCounts, JobId, JobStatus, NewJob
from drumbeat.core.job_step import JobStep
from drumbeat.core.pool import PoolId, PoolRow, Thresholds
from drumbeat.pool.bulk import BulkResult
from drumbeat.pool.error_groups import ErrorGroups
from drumbeat.pool.explain import JobExplanation
from drumbeat.pool.flows import WorkflowProgress
from drumbeat.pool.job_filter import JobFilter
from drumbeat.pool.option_types import ClaimOptions, JobFilters, NewJobOptions, NewPoolOptions, PoolChanges
from drumbeat.pool.schedules.model import JobSchedule, MissedTicks
from drumbeat.pool.schedules.service import ScheduleStatus
from drumbeat.pool.status import PoolStatus
from drumbeat.pool.worker.options import WorkPlan
from drumbeat.pool.workflow_graph import WorkflowGraph


class BlockingSchedules(Protocol):
    """The methods of ``Schedules``, for code without an event loop: each waits for its result. See ``Schedules``."""

    def add(
        self,
        name: str,
        payload: object = None,
        *,
        cron: str | None = None,
        every: timedelta | float | None = None,
        tz: str | None = None,
        missed: MissedTicks | str = MissedTicks.ONCE,
        exist_ok: bool = False,
        module: str | None = None,
        file: str | None = None,
        **options: Unpack[NewJobOptions],
    ) -> JobSchedule: ...

    def list(self) -> Sequence[ScheduleStatus]: ...

    def get(self, name: str) -> ScheduleStatus: ...

    def pause(self, name: str) -> JobSchedule: ...

    def resume(self, name: str) -> JobSchedule: ...

    def remove(self, name: str) -> None: ...

    def remove_undefined(self, is_undefined: Callable[[JobSchedule], bool]) -> Sequence[str]: ...


class BlockingPoolOperations(Protocol):
    """The methods of ``PoolOperations``, for code without an event loop: each waits for its result. See ``PoolOperations``."""

    def get(self) -> PoolRow: ...

    def pause(self, until: datetime | None = None, *, types: Sequence[str] = ()) -> PoolRow: ...

    def resume(self, *, types: Sequence[str] = ()) -> PoolRow: ...

    def cancel_where(
        self,
        selected: JobFilter | Mapping[str, object],
        *,
        limit: int | None = None,
        dry_run: bool = False,
        on_progress: Callable[[int], object] | None = None,
    ) -> BulkResult: ...

    def requeue(self, *job_ids: str) -> Sequence[JobId]: ...

    def requeue_where(
        self,
        selected: JobFilter | Mapping[str, object],
        *,
        limit: int | None = None,
        dry_run: bool = False,
        on_progress: Callable[[int], object] | None = None,
    ) -> BulkResult: ...

    def reschedule_where(
        self,
        selected: JobFilter | Mapping[str, object],
        run_at: datetime,
        *,
        limit: int | None = None,
        dry_run: bool = False,
        on_progress: Callable[[int], object] | None = None,
    ) -> BulkResult: ...

    def prioritise_where(
        self,
        selected: JobFilter | Mapping[str, object],
        priority: int,
        *,
        limit: int | None = None,
        dry_run: bool = False,
        on_progress: Callable[[int], object] | None = None,
    ) -> BulkResult: ...

    def errors(self, selected: JobFilter | Mapping[str, object] | None = None) -> ErrorGroups: ...


class BlockingPoolWorkflows(Protocol):
    """The methods of ``PoolWorkflows``, for code without an event loop: each waits for its result. See ``PoolWorkflows``."""

    def workflow(self, workflow_id: str) -> WorkflowProgress: ...

    def workflow_graph(self, workflow_id: str) -> WorkflowGraph: ...

    def workflow_jobs(
        self, workflow_id: str, *, statuses: Sequence[JobStatus] = (), after: str | None = None, limit: int = 1000
    ) -> Sequence[Job]: ...

    def cancel_workflow(self, workflow_id: str) -> Sequence[Job]: ...

    def cancel_subtree(self, job_id: str) -> Sequence[Job]: ...

    def requeue_subtree(self, job_id: str) -> Sequence[JobId]: ...

    def parents(self, job_id: str) -> Sequence[Job]: ...

    def children(self, job_id: str, limit: int = 1000) -> Sequence[Job]: ...


class BlockingPool(BlockingPoolOperations, BlockingPoolWorkflows, Protocol):
    """The methods of ``Pool``, for code without an event loop: each waits for its result. See ``Pool``."""

    pool_id: PoolId
    most_bytes: int

    def push_on(self, connection: object, payload: object, **options: Unpack[NewJobOptions]) -> JobId: ...

    def push_many_on(
        self, connection: object, payloads: Iterable[object], **options: Unpack[NewJobOptions]
    ) -> Sequence[JobId]: ...

    def push_jobs_on(self, connection: object, jobs: Sequence[NewJob], method: str = "push_on") -> Sequence[JobId]: ...

    def complete_on(self, connection: object, job: Job, result: object = None) -> None: ...

    def create(
        self,
        plan: WorkPlan | None = None,
        thresholds: Thresholds | None = None,
        *,
        exist_ok: bool = False,
        engine: str | None = None,
        **policy: Unpack[NewPoolOptions],
    ) -> PoolRow: ...

    def update(
        self,
        *,
        handlers: Mapping[str, str] | None = None,
        remove_handlers: Sequence[str] = (),
        heartbeat: timedelta | None = None,
        engine: str | None = None,
        **changes: Unpack[PoolChanges],
    ) -> PoolRow: ...

    def push(self, payload: object, **options: Unpack[NewJobOptions]) -> JobId: ...

    def push_many(self, payloads: Iterable[object], **options: Unpack[NewJobOptions]) -> Sequence[JobId]: ...

    def push_jobs(self, jobs: Sequence[NewJob]) -> Sequence[JobId]: ...

    def claim(self, *, lease: timedelta = timedelta(minutes=1), **more: Unpack[ClaimOptions]) -> Job | None: ...

    def claim_many(
        self,
        limit: int,
        *,
        lease: timedelta = timedelta(minutes=1),
        worker_id: str | None = None,
        capabilities: Sequence[str] = (),
        types: Sequence[str] = (),
    ) -> Sequence[Job]: ...

    def complete(self, job: Job, result: object = None) -> None: ...

    def fail(self, job: Job, error: str, *, fatal: bool = False, retry_in: timedelta | float | None = None) -> None: ...

    def release(self, job: Job) -> None: ...

    def renew(self, job: Job, lease: timedelta = timedelta(minutes=1)) -> bool: ...

    def progress(self, job: Job, share: float, note: str | None = None) -> None: ...

    def job(self, job_id: str) -> Job: ...

    def attempts(self, job_id: str) -> Sequence[Attempt]: ...

    def steps(self, job_id: str) -> Sequence[JobStep]: ...

    def send_event(self, job_id: str, name: str, value: object = None) -> None: ...

    def list(self, **filters: Unpack[JobFilters]) -> Sequence[Job]: ...

    def size(self) -> int: ...

    def status(self) -> PoolStatus: ...

    def explain(self, job_id: str) -> JobExplanation: ...

    def result(self, job_id: str, timeout: timedelta | float | None = None) -> Any: ...

    def cancel(self, *job_ids: str) -> Sequence[Job]: ...

    def delete(self, *, unfinished: bool = False, on_progress: Callable[[int], object] | None = None) -> JobCounts: ...

    @property
    def schedules(self) -> BlockingSchedules: ...

    def plan(self) -> WorkPlan: ...
