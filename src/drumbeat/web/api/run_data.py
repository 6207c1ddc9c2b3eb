"""API for the data of a run: time series, steps, decisions, workers, results, errors and single operations."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Query, Request, Response
from fastapi.responses import PlainTextResponse

from drumbeat.core.run import RunId, StepType
from drumbeat.web.api import pools
from drumbeat.web.api.answers import problems
from drumbeat.web.api.entry import PREFIX, Plane
from drumbeat.web.api.paging import by_number, execution_position, execution_position_text
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.series import thinned
from drumbeat.web.api.shapes import LARGEST_INT, After, Id, Limit, Page
from drumbeat.web.api.shapes_runs import (
    BeatShape,
    DecisionShape,
    Enriched,
    ErrorsShape,
    EventShape,
    ExecutionShape,
    LoadedShape,
    LogShape,
    ResultShape,
    Series,
    StepShape,
    WorkerShape,
)

router = checked("runs")

_RUN = f"{PREFIX}/runs/{{run_id}}"
Form = Literal["html", "markdown", "csv", "json", "junit", "prometheus"]
MEDIA_TYPES = {
    "html": "text/html",
    "markdown": "text/markdown",
    "csv": "text/csv",
    "json": "application/json",
    "junit": "application/xml",
    "prometheus": "text/plain",
}
_AFTER_EXECUTION = "Only rows after this position, as in `next`. It has no limit, and a late page takes no longer."
_REPORTS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The report", "content": {kind: {"schema": {}} for kind in MEDIA_TYPES.values()}}
}


@router.get(f"{_RUN}/samples", operation_id="run_samples", responses=problems(404, 409))
async def run_samples(
    run_id: Id,
    plane: Plane,
    points: Annotated[int, Query(ge=1, le=5000, description="Maximum number of points.")] = 300,
    since: Annotated[int, Query(ge=0, le=LARGEST_INT, description="Only from this second of the run.")] = 0,
    until: Annotated[int | None, Query(ge=0, le=LARGEST_INT, description="Only before this second of the run.")] = None,
) -> Series:
    """Return a run's time series over all workers. Each point combines all operations of one or more seconds."""
    origin, timeline = await plane.bench().seconds(RunId(run_id), since, until)
    seconds, found = await asyncio.to_thread(thinned, timeline, points)
    return Series(origin=origin, seconds=seconds, points=found)


@router.get(f"{_RUN}/steps", operation_id="run_steps", responses=problems(404, 409))
async def run_steps(run_id: Id, plane: Plane, type: StepType | None = None) -> list[StepShape]:  # noqa: A002
    """List the decisions of a run's load controller, with the measurements they are based on."""
    await plane.store.runs.get(RunId(run_id))
    return [StepShape.model_validate(each) for each in await plane.store.steps.list(RunId(run_id), type)]


@router.get(f"{_RUN}/decisions", operation_id="run_decisions", responses=problems(404, 409))
async def run_decisions(run_id: Id, plane: Plane) -> list[DecisionShape]:
    """List the decisions and events of a run with their reasons, oldest first."""
    return [DecisionShape.model_validate(each) for each in await plane.bench().decisions(RunId(run_id))]


@router.get(f"{_RUN}/workers", operation_id="run_workers", responses=problems(404, 409))
async def run_workers(run_id: Id, plane: Plane, live: bool = False) -> list[WorkerShape]:
    """List a run's workers, with their health."""
    return await pools.list_workers(run_id, plane, live)


@router.get(f"{_RUN}/events", operation_id="run_events", responses=problems(404, 409))
async def run_events(
    run_id: Id, plane: Plane, request: Request, response: Response, after: After = 0, limit: Limit = 100
) -> Page[EventShape]:
    """List the commands to a run's workers and changes of their state, oldest first."""
    return await pools.list_events(run_id, plane, request, response, after, limit)


@router.get(f"{_RUN}/beats", operation_id="run_beats", responses=problems(404, 409))
async def run_beats(
    run_id: Id, plane: Plane, request: Request, response: Response, after: After = 0, limit: Limit = 100
) -> Page[BeatShape]:
    """List the beats (passes of the control loop, one per second) of a run's orchestrators, with reasons, oldest first."""
    return await pools.list_beats(run_id, plane, request, response, after, limit)


@router.get(f"{_RUN}/logs", operation_id="run_logs", responses=problems(404, 409))
async def run_logs(
    run_id: Id,
    plane: Plane,
    request: Request,
    response: Response,
    worker: Annotated[str | None, Query(max_length=200)] = None,
    level: Annotated[pools.Level | None, Query(description="Only lines with this level or a higher one.")] = None,
    after: After = 0,
    limit: Limit = 100,
) -> Page[LogShape]:
    """List the log lines of a run's workers, oldest first."""
    return await pools.list_logs(run_id, plane, request, response, worker, level, after, limit)


@router.get(f"{_RUN}/results", operation_id="run_results", responses=problems(404, 409))
async def run_results(run_id: Id, plane: Plane) -> list[ResultShape]:
    """List the results of a run: the whole run first, then each worker; sorted by worker, then by kind of operation."""
    await plane.store.runs.get(RunId(run_id))
    return [ResultShape.model_validate(each) for each in await plane.store.results.list(RunId(run_id))]


@router.get(f"{_RUN}/errors", operation_id="run_errors", responses=problems(404, 409))
async def run_errors(run_id: Id, plane: Plane) -> ErrorsShape:
    """Return a run's errors: counts and examples."""
    return ErrorsShape.model_validate(await plane.bench().errors(RunId(run_id)))


@router.get(f"{_RUN}/executions", operation_id="run_executions", responses=problems(404, 409))
async def run_executions(
    run_id: Id,
    plane: Plane,
    request: Request,
    response: Response,
    kind: Annotated[str | None, Query(max_length=200, description="Only this kind of operation.")] = None,
    ok: Annotated[bool | None, Query(description="Only operations that succeeded (true) or failed (false).")] = None,
    worker: Annotated[str | None, Query(max_length=200)] = None,
    error_class: Annotated[str | None, Query(max_length=200, description="Only this error class: DATABASE_ERROR …")] = None,
    error: Annotated[str | None, Query(max_length=200, description="Only operations that failed with this SQLSTATE.")] = None,
    order: Annotated[
        Literal["started_at", "duration_ms"], Query(description="`started_at`: earliest first; `duration_ms`: longest first.")
    ] = "started_at",
    limit: Limit = 50,
    offset: Annotated[int, Query(ge=0, le=100_000, description="Number of rows to skip.")] = 0,
    after: Annotated[str | None, Query(max_length=300, description=_AFTER_EXECUTION)] = None,
) -> Page[ExecutionShape]:
    """List single operations of a run: those copied to the store, and those in workers' files on this host."""
    await plane.store.runs.get(RunId(run_id))
    filters = {"kind": kind, "ok": ok, "worker_id": worker, "error_class": error_class, "error": error, "order": order}
    position = None if after is None else execution_position(after, order)
    rows = await plane.bench().executions(RunId(run_id), **filters, after=position, offset=offset, limit=limit + 1)
    page = by_number(request, response, rows, limit, lambda last: execution_position_text(last, order))
    return Page[ExecutionShape].model_validate(page, from_attributes=True)


@router.post(f"{_RUN}/executions/load", operation_id="load_run_executions", responses=problems(404, 409))
async def load_run_executions(run_id: Id, plane: Plane) -> LoadedShape:
    """Copy a run's single operations into the store, from the workers' files that are on this host."""
    return LoadedShape.model_validate(await plane.bench().load_executions(RunId(run_id)))


@router.post(f"{_RUN}/enrich", operation_id="enrich_run", responses=problems(404, 409))
async def enrich_run(run_id: Id, plane: Plane) -> Enriched:
    """Retry the enrichment of a run's result, that is, add the database's own counters to it."""
    found = await plane.bench().enrich(RunId(run_id))
    return Enriched(status=found.enrichment_status, error=found.enrichment_error)


@router.get(
    f"{_RUN}/report",
    operation_id="run_report",
    response_class=PlainTextResponse,
    responses={**_REPORTS, **problems(404, 409)},
)
async def run_report(run_id: Id, plane: Plane, form: Form = "html") -> Response:
    """Return the report of a run in the format `form`."""
    return Response(await plane.bench().report(RunId(run_id), form), media_type=MEDIA_TYPES[form])
