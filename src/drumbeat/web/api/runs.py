"""API for runs: create, start, stop, list, explain, run again and delete."""

from collections import Counter
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar
from urllib.parse import quote

from fastapi import Query, Request, Response

from drumbeat.bench.model import LoadMode, RunExplanation, ScalingMode, stored_explanation
from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import Run, RunId, RunStatus
from drumbeat.web.api.answers import created, problems, set_location
from drumbeat.web.api.entry import PREFIX, Plane, State
from drumbeat.web.api.paging import by_offset
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.settings import settings_of, text_of
from drumbeat.web.api.shapes import Id, Limit, Moment, Offset, Page
from drumbeat.web.api.shapes_runs import ExplanationShape, NewRun, Rerun, RunMade, RunShape, RunStanding, WholeRun
from drumbeat.web.app_state import AppState
from drumbeat.web.databases import DatabaseType, matching_runs

if TYPE_CHECKING:
    from drumbeat.composition.plane import BenchService

router = checked("runs")

RUNS = f"{PREFIX}/runs"
_RUN = f"{RUNS}/{{run_id}}"
UNCHANGED = Rerun()
_LINKS = {name: f"{name}_run" for name in ("show", "start", "stop", "rerun", "remove")}

_MODEL_FAILED: dict[int | str, dict[str, Any]] = {
    502: problems(502)[502] | {"description": "The language model refused, did not answer, or gave no usable answer"}
}

Shown = TypeVar("Shown", bound=RunShape)
Order = Literal["-created_at", "created_at", "name", "-name", "status", "-status", "qps", "-qps", "operations", "-operations"]


@router.post(
    RUNS,
    status_code=201,
    operation_id="make_run",
    responses={**created(_LINKS, "run/run_id", "run_id"), **problems(404, 409, 501)},
)
async def create_run(body: NewRun, state: State, response: Response) -> RunMade:
    """Create a run (PREPARED) from a template or a document. The database is inspected, but gets no load before the start."""
    bench = state.plane.bench()
    run, preflight = await bench.create(await _document(bench, body), body.template)
    return await _created(state, response, run, preflight, start=body.start)


async def _document(bench: "BenchService", body: NewRun) -> Any:
    if (body.template is None) == (body.document is None):
        raise InvalidInput("template: expected a template or a document, got " + ("both" if body.template else "neither"))
    if body.document is not None:
        return await bench.document(text_of(body.document), settings_of(body.settings), is_text=True)
    return await bench.document(body.template or "", settings_of(body.settings))


async def _created(state: AppState, response: Response, run: Run, preflight: object, *, start: bool) -> RunMade:
    if start:
        await state.plane.bench().start(run.run_id)
    set_location(response, f"{RUNS}/{quote(run.run_id)}")
    shown = await _shown_now(state, run.run_id)
    return RunMade.model_validate({"run": shown, "preflight": preflight}, from_attributes=True)


@router.get(RUNS, operation_id="list_runs", responses=problems(404, 409))
async def list_runs(
    state: State,
    request: Request,
    response: Response,
    status: Annotated[list[RunStatus] | None, Query(description="Only runs with one of these statuses.")] = None,
    search: Annotated[str | None, Query(max_length=200, description="Only runs whose name contains this text.")] = None,
    template: Annotated[
        str | None,
        Query(max_length=200, description="Only runs of this template, given by id or name; of a removed template by id."),
    ] = None,
    load_mode: LoadMode | None = None,
    scaling_mode: ScalingMode | None = None,
    database: Annotated[
        DatabaseType | None, Query(description="Only runs on this type of database, among the newest 1000 matches.")
    ] = None,
    since: Annotated[Moment | None, Query(description="Only runs created at or after this time.")] = None,
    until: Annotated[Moment | None, Query(description="Only runs created before this time.")] = None,
    sort: Annotated[
        Order,
        Query(description="Prefix a field with `-` for descending order. Orders other than -created_at sort the newest 1000."),
    ] = "-created_at",
    limit: Limit = 50,
    offset: Offset = 0,
) -> Page[RunShape]:
    """List the runs that match every filter, with their verdicts."""
    plane = state.plane
    filters = {
        "statuses": status or (),
        "search": search,
        "template_id": await plane.bench().template_id(template) if template else None,
        "load_mode": load_mode,
        "scaling_mode": scaling_mode,
        "since": since,
        "until": until,
    }
    order = partial(sorted, key=attrgetter(sort.removeprefix("-")), reverse=sort.startswith("-"))
    rows = await matching_runs(plane.store.runs, filters, database, None if sort == "-created_at" else order, offset, limit + 1)
    found = by_offset(request, response, rows, limit, offset)
    return Page[RunShape](items=[await _shown(state, run, RunShape) for run in found["items"]], next=found["next"])


async def _shown(state: AppState, run: Run, shape: type[Shown]) -> Shown:
    """Return a run with its verdict, as a response model."""
    judged = await state.verdicts.of(run)
    verdict = {"verdict": judged.verdict, "verdict_reason": judged.reason, "is_orphan": judged.is_orphan}
    return shape.model_validate(run).model_copy(update=verdict)


async def _shown_now(state: AppState, run_id: RunId) -> RunShape:
    return await _shown(state, await state.plane.store.runs.get(run_id), RunShape)


@router.get(_RUN, operation_id="show_run", responses=problems(404, 409))
async def show_run(run_id: Id, state: State) -> WholeRun:
    """Return a run with its verdict and configuration; after its end also its summary and, if stored, its explanation."""
    run = await state.plane.store.runs.get(RunId(run_id))
    words = {"summary": list(await state.verdicts.summary_of(run)), "explanation": _explained(stored_explanation(run))}
    return (await _shown(state, run, WholeRun)).model_copy(update=words)


def _explained(found: RunExplanation | None) -> ExplanationShape | None:
    return ExplanationShape.model_validate(found) if found else None


@router.post(f"{_RUN}/explain", operation_id="explain_run", responses=problems(404, 409, 501) | _MODEL_FAILED)
async def explain_run(run_id: Id, plane: Plane) -> ExplanationShape:
    """Ask a language model, which the server's settings name, to explain an ended run from the run's figures only. The text is
    stored with the run and replaces an earlier text. 409 if no language model is set up or the run has not ended, 502 if the
    model gives no usable answer."""
    return ExplanationShape.model_validate(await plane.bench().explain(RunId(run_id)))


@router.get(f"{_RUN}/status", operation_id="show_run_status", responses=problems(404, 409))
async def show_run_status(run_id: Id, state: State) -> RunStanding:
    """Return the status of a run: its orchestrator, its verdict and its workers."""
    found = await state.plane.bench().status(RunId(run_id))
    run = await _shown(state, found.run, RunShape)
    return RunStanding(
        run=run,
        led_by=found.led_by,
        is_orphan=run.is_orphan,
        verdict=run.verdict,
        verdict_reason=run.verdict_reason,
        workers=dict(Counter(str(worker.status) for worker in found.workers)),
    )


@router.post(f"{_RUN}/start", status_code=202, operation_id="start_run", responses=problems(404, 409))
async def start_run(run_id: Id, state: State) -> RunShape:
    """Start a PREPARED run. This server orchestrates the run; with --no-conduct it leaves that to another orchestrator."""
    await state.plane.bench().start(RunId(run_id))
    return await _shown_now(state, RunId(run_id))


@router.post(f"{_RUN}/stop", status_code=202, operation_id="stop_run", responses=problems(404, 409))
async def stop_run(run_id: Id, state: State) -> RunShape:
    """Stop (cancel) a run. A run that has already ended is unchanged."""
    await state.plane.bench().stop(RunId(run_id))
    return await _shown_now(state, RunId(run_id))


@router.post(
    f"{_RUN}/rerun",
    status_code=201,
    operation_id="rerun_run",
    responses={**created(_LINKS, "run/run_id", "run_id"), **problems(404, 409)},
)
async def rerun(run_id: Id, state: State, response: Response, body: Rerun = UNCHANGED) -> RunMade:
    """Create a run with the configuration of an earlier run, optionally with some settings changed."""
    run, preflight = await state.plane.bench().recreate(RunId(run_id), settings_of(body.settings))
    return await _created(state, response, run, preflight, start=body.start)


@router.delete(_RUN, status_code=204, operation_id="remove_run", responses=problems(404, 409))
async def remove_run(run_id: Id, plane: Plane) -> None:
    """Delete a run and all its measurements. Refused while the run is active."""
    await plane.bench().remove(RunId(run_id))
