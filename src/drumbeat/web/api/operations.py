"""API for operations on the jobs that match a filter, and for error groups of poisoned jobs."""

from typing import Annotated

from fastapi import Query

from drumbeat.client import JobFilter
from drumbeat.web.api.answers import problems
from drumbeat.web.api.entry import PREFIX, Plane, State
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import Id
from drumbeat.web.api.shapes_operations import (
    ErrorGroupsShape,
    JobsOperation,
    JobsOperationResult,
    JobsPrioritise,
    JobsReschedule,
)

router = checked("jobs")

_POOL = f"{PREFIX}/pools/{{pool_id}}"
_Age = Annotated[float | None, Query(ge=0, le=315_360_000, allow_inf_nan=False)]
_Word = Annotated[str | None, Query(max_length=200)]


@router.post(f"{_POOL}/jobs/cancel-matching", operation_id="cancel_matching_jobs", responses=problems(404))
async def cancel_matching_jobs(pool_id: Id, body: JobsOperation, plane: Plane) -> JobsOperationResult:
    """Cancel the unfinished jobs that match a filter. Workers of running jobs are asked to stop them."""
    done = await plane.pool(pool_id).cancel_where(_filter(body), limit=body.limit, dry_run=body.dry_run)
    return JobsOperationResult.model_validate(done)


@router.post(f"{_POOL}/jobs/requeue-matching", operation_id="requeue_matching_jobs", responses=problems(404))
async def requeue_matching_jobs(pool_id: Id, body: JobsOperation, state: State) -> JobsOperationResult:
    """Put the poisoned jobs that match a filter back in the queue; cancelled jobs too if ``statuses`` names them."""
    done = await state.pool(pool_id).requeue_where(_filter(body), limit=body.limit, dry_run=body.dry_run)
    return JobsOperationResult.model_validate(done)


@router.post(f"{_POOL}/jobs/reschedule-matching", operation_id="reschedule_matching_jobs", responses=problems(404))
async def reschedule_matching_jobs(pool_id: Id, body: JobsReschedule, state: State) -> JobsOperationResult:
    """Give the pending jobs that match a filter another earliest start."""
    pool = state.pool(pool_id)
    done = await pool.reschedule_where(_filter(body), body.run_at, limit=body.limit, dry_run=body.dry_run)
    return JobsOperationResult.model_validate(done)


@router.post(f"{_POOL}/jobs/prioritise-matching", operation_id="prioritise_matching_jobs", responses=problems(404))
async def prioritise_matching_jobs(pool_id: Id, body: JobsPrioritise, plane: Plane) -> JobsOperationResult:
    """Give the pending jobs that match a filter another priority."""
    pool = plane.pool(pool_id)
    done = await pool.prioritise_where(_filter(body), body.priority, limit=body.limit, dry_run=body.dry_run)
    return JobsOperationResult.model_validate(done)


def _filter(body: JobsOperation) -> JobFilter:
    return JobFilter(**body.filter.model_dump(exclude_none=True))


@router.get(f"{_POOL}/errors", operation_id="list_error_groups", responses=problems(404))
async def list_error_groups(
    pool_id: Id,
    plane: Plane,
    type: _Word = None,  # noqa: A002
    older_than: _Age = None,
    newer_than: _Age = None,
) -> ErrorGroupsShape:
    """List the errors of poisoned jobs in groups, most frequent first. Ages in seconds count from when a job was poisoned."""
    ages = {name: value for name, value in (("older_than", older_than), ("newer_than", newer_than)) if value is not None}
    return ErrorGroupsShape.model_validate(await plane.pool(pool_id).errors({"job_type": type, **ages}))
