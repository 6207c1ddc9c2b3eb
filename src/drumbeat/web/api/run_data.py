"""What is in a run: its course, steps, decisions, workers, results, errors and single operations."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Query, Request, Response
from fastapi.responses import PlainTextResponse

from drumbeat.core.run import RunId, StepType
from drumbeat.web.api import pools
from drumbeat.web.api.answers import problems
from drumbeat.web.api.entry import PREFIX, Plane
from drumbeat.web.api.paging import by_offset
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
_WRITTEN: dict[int | str, dict[str, Any]] = {
    200: {"description": "The report", "content": {kind: {"schema": {}} for kind in MEDIA_TYPES.values()}}
}


@router.get(f"{_RUN}/samples", operation_id="run_samples", responses=problems(404, 409))
async def samples(
    run_id: Id,
    plane: Plane,
    points: Annotated[int, Query(ge=1, le=5000, description="How many points at the most.")] = 300,
    since: Annotated[int, Query(ge=0, le=LARGEST_INT, description="From this second of the run.")] = 0,
    until: Annotated[int | None, Query(ge=0, le=LARGEST_INT, description="To before this second of the run.")] = None,
) -> Series:
    """A run's course over all its workers, thinned here: percentiles are of all operations a point stands for."""
    origin, timeline = await plane.bench().seconds(RunId(run_id), since, until)
    seconds, found = await asyncio.to_thread(thinned, timeline, points)
    return Series(origin=origin, seconds=seconds, points=found)


@router.get(f"{_RUN}/steps", operation_id="run_steps", responses=problems(404, 409))
async def steps(run_id: Id, plane: Plane, type: StepType | None = None) -> list[StepShape]:  # noqa: A002
    """What a run's controller decided, step by step."""
    await plane.store.runs.get(RunId(run_id))
    return [StepShape.model_validate(each) for each in await plane.store.steps.list(RunId(run_id), type)]


@router.get(f"{_RUN}/decisions", operation_id="run_decisions", responses=problems(404, 409))
async def decisions(run_id: Id, plane: Plane) -> list[DecisionShape]:
    """What was decided and what befell, in order, with reasons."""
    return [DecisionShape.model_validate(each) for each in await plane.bench().decisions(RunId(run_id))]


@router.get(f"{_RUN}/workers", operation_id="run_workers", responses=problems(404, 409))
async def workers(run_id: Id, plane: Plane, live: bool = False) -> list[WorkerShape]:
    """A run's workers, with their health."""
    return await pools.workers(run_id, plane, live)


@router.get(f"{_RUN}/events", operation_id="run_events", responses=problems(404, 409))
async def events(
    run_id: Id, plane: Plane, request: Request, response: Response, after: After = 0, limit: Limit = 100
) -> Page[EventShape]:
    """What a run's workers were told, and what became of them, in order."""
    return await pools.events(run_id, plane, request, response, after, limit)


@router.get(f"{_RUN}/beats", operation_id="run_beats", responses=problems(404, 409))
async def beats(
    run_id: Id, plane: Plane, request: Request, response: Response, after: After = 0, limit: Limit = 100
) -> Page[BeatShape]:
    """What a run's orchestrators did each second, and why, oldest first."""
    return await pools.beats(run_id, plane, request, response, after, limit)


@router.get(f"{_RUN}/logs", operation_id="run_logs", responses=problems(404, 409))
async def logs(
    run_id: Id,
    plane: Plane,
    request: Request,
    response: Response,
    worker: Annotated[str | None, Query(max_length=200)] = None,
    level: Annotated[pools.Level | None, Query(description="This level and up.")] = None,
    after: After = 0,
    limit: Limit = 100,
) -> Page[LogShape]:
    """Log lines of a run's workers, oldest first."""
    return await pools.logs(run_id, plane, request, response, worker, level, after, limit)


@router.get(f"{_RUN}/results", operation_id="run_results", responses=problems(404, 409))
async def results(run_id: Id, plane: Plane) -> list[ResultShape]:
    """What a run came to: the whole run's first, then by worker and kind."""
    await plane.store.runs.get(RunId(run_id))
    return [ResultShape.model_validate(each) for each in await plane.store.results.list(RunId(run_id))]


@router.get(f"{_RUN}/errors", operation_id="run_errors", responses=problems(404, 409))
async def errors(run_id: Id, plane: Plane) -> ErrorsShape:
    """A run's errors, in sum and by example."""
    return ErrorsShape.model_validate(await plane.bench().errors(RunId(run_id)))


@router.get(f"{_RUN}/executions", operation_id="run_executions", responses=problems(404, 409))
async def executions(
    run_id: Id,
    plane: Plane,
    request: Request,
    response: Response,
    kind: Annotated[str | None, Query(max_length=200, description="Only this kind of operation.")] = None,
    ok: Annotated[bool | None, Query(description="Only those that went well, or that did not.")] = None,
    worker: Annotated[str | None, Query(max_length=200)] = None,
    error_class: Annotated[str | None, Query(max_length=200, description="Only those that failed so: DATABASE_ERROR …")] = None,
    error: Annotated[str | None, Query(max_length=200, description="Only those that failed with this SQLSTATE.")] = None,
    order: Annotated[
        Literal["started_at", "duration_ms"], Query(description="The earliest first, or the longest.")
    ] = "started_at",
    limit: Limit = 50,
    offset: Annotated[int, Query(ge=0, le=100_000, description="Pass over so many.")] = 0,
) -> Page[ExecutionShape]:
    """Single operations of a run: from the store if they were copied there, else from files on this host."""
    await plane.store.runs.get(RunId(run_id))
    chosen = {"kind": kind, "ok": ok, "worker_id": worker, "error_class": error_class, "error": error, "order": order}
    rows = await plane.bench().executions(RunId(run_id), **chosen, offset=offset, limit=limit + 1)
    return Page[ExecutionShape].model_validate(by_offset(request, response, rows, limit, offset), from_attributes=True)


@router.post(f"{_RUN}/executions/load", operation_id="load_run_executions", responses=problems(404, 409))
async def load(run_id: Id, plane: Plane) -> LoadedShape:
    """Copy a run's operations into the store, as far as their files are on this host."""
    return LoadedShape.model_validate(await plane.bench().load_executions(RunId(run_id)))


@router.post(f"{_RUN}/enrich", operation_id="enrich_run", responses=problems(404, 409))
async def enrich(run_id: Id, plane: Plane) -> Enriched:
    """Try again to complete a run's result with its database's own totals."""
    found = await plane.bench().enrich(RunId(run_id))
    return Enriched(status=found.enrichment_status, error=found.enrichment_error)


@router.get(
    f"{_RUN}/report",
    operation_id="run_report",
    response_class=PlainTextResponse,
    responses={**_WRITTEN, **problems(404, 409)},
)
async def report(run_id: Id, plane: Plane, form: Form = "html") -> Response:
    """A run written down."""
    return Response(await plane.bench().report(RunId(run_id), form), media_type=MEDIA_TYPES[form])
