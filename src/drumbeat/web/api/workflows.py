"""API for workflows: progress, graph and jobs; cancel a workflow; cancel and requeue a job with all jobs below it."""

from typing import Annotated

from fastapi import Query, Request, Response

from drumbeat.core.job import JobStatus
from drumbeat.web.api.answers import problems
from drumbeat.web.api.entry import PREFIX, Plane, State
from drumbeat.web.api.paging import by_number
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import Id, Limit, Page
from drumbeat.web.api.shapes_pools import JobShape, Pushed
from drumbeat.web.api.shapes_workflows import BoxLink, BoxShape, CancelledJobs, WorkflowShape

router = checked("workflows")

ANY_POOL = "default"  #: workflows are read through a pool, but reach the jobs of all pools
_WORKFLOW = f"{PREFIX}/workflows/{{workflow_id}}"
_JOB = f"{PREFIX}/pools/{{pool_id}}/jobs/{{job_id}}"


@router.get(_WORKFLOW, operation_id="show_workflow", responses=problems(404))
async def show_workflow(workflow_id: Id, plane: Plane) -> WorkflowShape:
    """Return the progress of a workflow and its graph. If it is large, jobs of one level, pool and type are one box."""
    found = await plane.pool(ANY_POOL).workflow_graph(workflow_id)
    progress = found.progress
    return WorkflowShape(
        workflow_id=progress.workflow_id,
        jobs=progress.total,
        ended=progress.ended,
        share=progress.share,
        counts=dict(progress.counts),
        boxes=[
            BoxShape(
                level=box.level,
                pool_id=box.pool_id,
                type=box.type,
                jobs=box.total,
                counts=dict(box.counts),
                job_ids=list(box.job_ids),
            )
            for box in found.boxes
        ],
        links=[BoxLink(parent=parent, child=child) for parent, child in found.links],
        is_sampled=found.is_sampled,
    )


@router.get(f"{_WORKFLOW}/jobs", operation_id="list_workflow_jobs", responses=problems(404))
async def list_workflow_jobs(
    workflow_id: Id,
    plane: Plane,
    request: Request,
    response: Response,
    status: Annotated[list[JobStatus] | None, Query(description="Only jobs with one of these statuses.")] = None,
    after: Annotated[str | None, Query(max_length=200, description="Only jobs pushed after this job id.")] = None,
    limit: Limit = 100,
) -> Page[JobShape]:
    """List the jobs of a workflow, of all pools, in the order they were pushed."""
    pool = plane.pool(ANY_POOL)
    await pool.workflow(workflow_id)
    rows = await pool.workflow_jobs(workflow_id, statuses=status or (), after=after, limit=limit + 1)
    page = by_number(request, response, rows, limit, lambda row: row.job_id)
    return Page[JobShape].model_validate(page, from_attributes=True)


@router.post(f"{_WORKFLOW}/cancel", operation_id="cancel_workflow", responses=problems(404))
async def cancel_workflow(workflow_id: Id, plane: Plane) -> CancelledJobs:
    """Cancel all unfinished jobs of a workflow, of all pools. Workers of running jobs are asked to stop them."""
    return CancelledJobs.of(await plane.pool(ANY_POOL).cancel_workflow(workflow_id))


@router.post(f"{_JOB}/cancel-subtree", operation_id="cancel_subtree", responses=problems(404))
async def cancel_subtree(pool_id: Id, job_id: Id, plane: Plane) -> CancelledJobs:
    """Cancel a job and all jobs that wait for it, directly or through other jobs, also in other pools."""
    return CancelledJobs.of(await plane.pool(pool_id).cancel_subtree(job_id))


@router.post(f"{_JOB}/requeue-subtree", operation_id="requeue_subtree", responses=problems(404))
async def requeue_subtree(pool_id: Id, job_id: Id, state: State) -> Pushed:
    """Put a job and the jobs below it that are poisoned or cancelled back in the queue; each waits for its parents again."""
    return Pushed(job_ids=list(await state.pool(pool_id).requeue_subtree(job_id)))
