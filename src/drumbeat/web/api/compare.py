"""API to compare runs, show trends and check for regressions."""

import json
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from fastapi.responses import JSONResponse

from drumbeat.core.run import RunId
from drumbeat.web.api.answers import problems
from drumbeat.web.api.entry import PREFIX, Plane
from drumbeat.web.api.route import router as checked
from drumbeat.web.api.shapes import Id
from drumbeat.web.api.shapes_trend import Regression, RunTrend, TrendFigure, TrendRun

router = checked("runs")

_TYPES = {"json": "application/json", "html": "text/html", "markdown": "text/markdown"}
_WRITTEN: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Each further run compared with the first",
        "content": {
            "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
            "text/html": {"schema": {}},
            "text/markdown": {"schema": {}},
        },
    }
}


@router.get(
    f"{PREFIX}/compare", operation_id="compare_runs", response_class=JSONResponse, responses={**_WRITTEN, **problems(404, 409)}
)
async def compare_runs(
    plane: Plane,
    run: Annotated[list[str], Query(min_length=2, max_length=5, description="Two to five run ids; the first is the baseline.")],
    form: Literal["json", "html", "markdown"] = "json",
) -> Response:
    """Compare runs: what differs, and whether each difference is significant or noise."""
    bench = plane.bench()
    found = await bench.compare([RunId(each) for each in run])
    return Response(bench.compared(found, form), media_type=_TYPES[form])


@router.get(f"{PREFIX}/runs/{{run_id}}/trend", operation_id="run_trend", responses=problems(404, 409))
async def run_trend(
    run_id: Id,
    plane: Plane,
    limit: Annotated[int, Query(ge=2, le=200, description="Maximum number of runs; the newest are used.")] = 20,
) -> RunTrend:
    """Return the trend of a run's metrics over earlier runs of its template, or of its configuration if it has no template."""
    found = await plane.bench().trend(RunId(run_id), limit)
    runs = [
        TrendRun(
            run_id=each.run.run_id, created_at=each.run.created_at, verdict=each.judgement.verdict, figures=dict(each.figures)
        )
        for each in found.points
    ]
    trends = {name: TrendFigure.model_validate(each) for name, each in found.histories.items()}
    return RunTrend(runs=runs, trends=trends)


@router.get(f"{PREFIX}/runs/{{run_id}}/regression", operation_id="run_regression", responses=problems(404, 409))
async def run_regression(
    run_id: Id,
    plane: Plane,
    against: Annotated[str, Query(min_length=1, max_length=200, description="Another run id, or `last-good`.")] = "last-good",
) -> Regression:
    """Check whether a run is worse than another run: by default, the newest earlier run of the same kind that passed."""
    bench = plane.bench()
    found = await bench.regress(RunId(run_id), against)
    status = bench.regressed(found)
    comparison: list[dict[str, Any]] = json.loads(bench.compared((found,), "json")) if found is not None else []
    return Regression.model_validate({"verdict": status.name.lower(), "exit_code": int(status), "comparison": comparison})
