"""API for jobs: push, list, show, explain, send events, cancel and requeue."""

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Query, Request, Response

from drumbeat.client import NewJob as PushedJob, new_job
from drumbeat.core.job import JobId, JobStatus
from drumbeat.core.worker import WorkerId
from drumbeat.web.api.answers import created, problems, set_location
from drumbeat.web.api.entry import PREFIX, Plane, State
from drumbeat.web.api.paging import by_number
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import Id, Limit, Page
from drumbeat.web.api.shapes_pools import (
    AttemptShape,
    EventToSend,
    JobExplained,
    JobShape,
    JobsNamed,
    JobStepShape,
    JobsToRequeue,
    JobToPush,
    NewJobs,
    Pushed,
    WholeJob,
)
from drumbeat.web.app_state import AppState

router = checked("jobs")

_JOBS = f"{PREFIX}/pools/{{pool_id}}/jobs"
ALL_POISONED = JobsToRequeue()
_JOB = f"{_JOBS}/{{job_id}}"


def _links() -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI links to a pushed job: the pool id comes from the request's path, the job id from the response."""
    found = created({"show": "show_job", "explain": "explain_job"}, "job_ids/0", "job_id")
    for link in found[201]["links"].values():
        link["parameters"]["pool_id"] = "$request.path.pool_id"
    return found


@router.post(_JOBS, status_code=201, operation_id="push_job", responses={**_links(), **problems(404, 409)})
async def push_job(pool_id: Id, body: JobToPush, state: State, response: Response) -> Pushed:
    """Push a job. The pool is created if it does not exist."""
    ids = await _push(state, pool_id, [body])
    set_location(response, f"{PREFIX}/pools/{quote(pool_id, safe='')}/jobs/{quote(ids[0], safe='')}")
    return Pushed(job_ids=ids)


@router.post(f"{_JOBS}/many", status_code=201, operation_id="push_jobs", responses={**_links(), **problems(404, 409)})
async def push_jobs(pool_id: Id, body: NewJobs, state: State) -> Pushed:
    """Push several jobs in one request. On an error, none of them is pushed."""
    return Pushed(job_ids=await _push(state, pool_id, body.jobs))


def _job(body: JobToPush, most_bytes: int) -> PushedJob:
    given = body.model_dump(exclude_unset=True, exclude={"payload"})
    return new_job(body.payload, most_bytes, **{name: value for name, value in given.items() if value is not None})


async def _push(state: AppState, pool_id: str, bodies: Sequence[JobToPush]) -> list[str]:
    pool = state.pool(pool_id)
    return list(await pool.push_jobs([_job(body, pool.most_bytes) for body in bodies]))


@router.get(_JOBS, operation_id="list_jobs", responses=problems(404))
async def list_jobs(
    pool_id: Id,
    plane: Plane,
    request: Request,
    response: Response,
    status: Annotated[list[JobStatus] | None, Query(description="Only jobs with one of these statuses.")] = None,
    type: Annotated[str | None, Query(max_length=200, description="Only jobs of this type.")] = None,  # noqa: A002
    group: Annotated[str | None, Query(max_length=200, description="Only jobs of this group.")] = None,
    worker: Annotated[str | None, Query(max_length=200, description="Only jobs that this worker holds or held last.")] = None,
    after: Annotated[str | None, Query(max_length=200, description="Only jobs pushed after this job id.")] = None,
    limit: Limit = 100,
) -> Page[JobShape]:
    """List a pool's jobs, in the order they were pushed."""
    rows = await plane.pool(pool_id).list(
        statuses=status or (),
        job_type=type,
        group=group,
        worker_id=WorkerId(worker) if worker else None,
        after=JobId(after) if after else None,
        limit=limit + 1,
    )
    page = by_number(request, response, rows, limit, lambda row: row.job_id)
    return Page[JobShape].model_validate(page, from_attributes=True)


@router.get(_JOB, operation_id="show_job", responses=problems(404))
async def show_job(pool_id: Id, job_id: Id, plane: Plane) -> WholeJob:
    """Return a job with its attempts and durable steps."""
    pool = plane.pool(pool_id)
    found = await pool.job(job_id)
    attempts = [AttemptShape.model_validate(each) for each in await pool.attempts(job_id)]
    steps = [JobStepShape.model_validate(each) for each in await pool.steps(job_id)]
    return WholeJob(job=JobShape.model_validate(found), attempts=attempts, steps=steps)


@router.post(f"{_JOB}/events", status_code=204, operation_id="send_event", responses=problems(404, 409))
async def send_event(pool_id: Id, job_id: Id, body: EventToSend, state: State) -> None:
    """Send an event to a job. It is kept until the job waits for it. Of two events of one name, the first counts."""
    await state.pool(pool_id).send_event(job_id, body.name, body.value)


@router.get(f"{_JOB}/explain", operation_id="explain_job", responses=problems(404))
async def explain_job(pool_id: Id, job_id: Id, plane: Plane) -> JobExplained:
    """Explain why a job is not running, or how it ended."""
    return JobExplained.model_validate(await plane.pool(pool_id).explain(job_id))


@router.post(f"{_JOBS}/cancel", operation_id="cancel_jobs", responses=problems(404))
async def cancel_jobs(pool_id: Id, body: JobsNamed, plane: Plane) -> list[JobShape]:
    """Cancel jobs: pending jobs at once, running jobs as soon as their worker is notified. Ended jobs are unchanged."""
    return [JobShape.model_validate(each) for each in await plane.pool(pool_id).cancel(*body.job_ids)]


@router.post(f"{_JOBS}/requeue", operation_id="requeue_jobs", responses=problems(404))
async def requeue_jobs(pool_id: Id, state: State, body: JobsToRequeue = ALL_POISONED) -> Pushed:
    """Put poisoned and cancelled jobs back in the queue, with their failure counts reset. Returns the ids of these jobs."""
    return Pushed(job_ids=list(await state.pool(pool_id).requeue(*(body.job_ids or ()))))
