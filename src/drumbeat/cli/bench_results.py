"""drumbeat bench report, compare, trend and regress: results of runs."""

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drumbeat.bench.model import number
from drumbeat.cli.bench_outcome import form_of, write
from drumbeat.cli.bench_runs import RunArgument
from drumbeat.cli.options import JsonOption, LimitOption, StoreOption, with_control_plane
from drumbeat.cli.render import Columns, console, errors, say, show, show_json, table
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import Run, RunId

if TYPE_CHECKING:
    from drumbeat.composition.plane import BenchService

app = typer.Typer()
_LAST_GOOD = "last-good"

_EXECUTION: Columns = {
    "at": lambda each: f"{each.started_at:%H:%M:%S.%f}",
    "worker": lambda each: each.worker_id,
    "connection": lambda each: each.connection,
    "kind": lambda each: each.kind,
    "ms": lambda each: f"{each.duration_ms:.3f}",
    "rows": lambda each: each.rows,
    "error": lambda each: f"{each.error_class} {each.error or ''}" if not each.ok else None,
    "phase": lambda each: "warmup" if each.warmup else "",
}
_FORMATS = ("html", "markdown", "csv", "json", "junit", "prometheus")


@app.command("report")
def report(
    run_id: RunArgument,
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write a self-contained HTML page.")] = None,
    output: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", metavar="FILE", help="Report file; its extension selects the format."),
    ] = None,
    form: Annotated[str | None, typer.Option("--form", help=f"Print the report as one of {', '.join(_FORMATS)}.")] = None,
    store: StoreOption = None,
) -> None:
    """Write a report of a run as HTML, Markdown, CSV, JSON, JUnit or Prometheus text. Without a file: print Markdown."""
    files = {path: form_of(path) for path in output or ()} | ({html: "html"} if html else {})
    if form is not None and form not in _FORMATS:
        raise InvalidInput(f"expected --form to be one of {', '.join(_FORMATS)}, got {form!r}")

    async def work(plane: ControlPlane) -> None:
        bench = plane.bench()
        for path, each in files.items():
            write(path, await bench.report(RunId(run_id), each))
            (say if form is None else errors.print)(f"report: {path}")
        if form is not None or not files:
            print(await bench.report(RunId(run_id), form or "markdown"), end="")

    with_control_plane(store, work)


@app.command("enrich")
def enrich(run_id: RunArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Add the database server's own statistics to the result of a run, if that failed when the run ended."""
    found = with_control_plane(store, lambda plane: plane.bench().enrich(RunId(run_id)))
    if as_json:
        show_json({"status": found.enrichment_status, "error": found.enrichment_error, **found.custom_metrics["server"]})
    else:
        say(f"{found.enrichment_status}" + (f": {found.enrichment_error}" if found.enrichment_error else ""))


@app.command("executions")
def executions(
    run_id: RunArgument,
    load: Annotated[bool, typer.Option("--load", help="First copy operations from files on this host.")] = False,
    kind: Annotated[str | None, typer.Option("--kind", help="Only this kind of operation.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only failed operations.")] = False,
    error_class: Annotated[
        str | None, typer.Option("--error-class", help="Only this error class: DATABASE_ERROR, QUERY_TIMEOUT, CONNECTION …")
    ] = None,
    error: Annotated[str | None, typer.Option("--error", help="Only this SQLSTATE.")] = None,
    slowest: Annotated[bool, typer.Option("--slowest", help="Sort by duration, longest first. Default: by start time")] = False,
    limit: LimitOption = 50,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Number of rows to skip.")] = 0,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List recorded operations of a run: kind, duration, rows and error of each."""

    async def work(plane: ControlPlane) -> Any:
        await plane.store.runs.get(RunId(run_id))
        if load:
            copied = await plane.bench().load_executions(RunId(run_id))
            if not as_json:
                say(f"copied {copied.rows:,} new operations from {copied.files} files")
                for path in copied.elsewhere:
                    say(f"not on this host: {path}", style="yellow")
        rows = await plane.store.executions.list(
            RunId(run_id),
            kind=kind,
            ok=False if failed else None,
            error_class=error_class,
            error=error,
            order="duration_ms" if slowest else "started_at",
            offset=offset,
            limit=limit,
        )
        return rows, "" if rows else await _why_none(plane, RunId(run_id))

    found, nothing = with_control_plane(store, work)
    show(found, _EXECUTION, as_json=as_json, nothing=nothing)


async def _why_none(plane: ControlPlane, run_id: RunId) -> str:
    """Return a message that says why no operation was found: the filters exclude all, the operations are still in files, or
    none was recorded."""
    if count := await plane.store.executions.count(run_id):
        return f"none of the {count:,} operations in the store matches; remove a filter"
    if files := await plane.store.results.list_files(run_id):
        rows = sum(file.rows for file in files)
        return f"the store has no operations, but the workers' files have {rows:,}; copy them with --load"
    return f"{run_id} recorded no operations: it executed none, or its recording.sampling is 0"


@app.command("compare")
def compare(
    run_ids: Annotated[list[str], typer.Argument(metavar="RUN RUN …", help="Two to five run ids; the first is the baseline.")],
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", help="Write a self-contained HTML page.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare runs: which figures differ, and whether the difference is significant or noise."""

    async def work(plane: ControlPlane) -> None:
        bench = plane.bench()
        found = await bench.compare([RunId(each) for each in run_ids])
        if html:
            write(html, bench.compared(found, "html"))
            (errors.print if as_json else say)(f"report: {html}")
        print(bench.compared(found, "json" if as_json else "markdown"), end="")

    with_control_plane(store, work)


@app.command("trend")
def trend(
    run_id: RunArgument,
    limit: Annotated[int, typer.Option("--limit", min=2, max=200, help="Number of runs, newest first.")] = 20,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the trend of a run's figures over earlier runs of its template, or of its configuration if it has no template."""
    found = with_control_plane(store, lambda plane: plane.bench().trend(RunId(run_id), limit))
    if as_json:
        show_json(_trend_json(found))
        return
    if not found.points:
        say(f"{run_id} and the runs before it have no measurements")
        return
    names = list(found.histories)
    console.print(table(found.points, {**_POINT, **{name: _figure_of(name) for name in names}}))
    console.print(table(list(found.histories.items()), _HISTORY))


def _figure_of(name: str) -> Callable[[Any], object]:
    return lambda point: number(point.figures.get(name))


def _trend_json(found: Any) -> dict[str, Any]:
    runs = [
        {"run_id": each.run.run_id, "created_at": each.run.created_at, "verdict": each.judgement.verdict, **each.figures}
        for each in found.points
    ]
    return {"runs": runs, "trends": {name: _history_json(each) for name, each in found.histories.items()}}


def _history_json(found: Any) -> dict[str, Any]:
    plain: dict[str, Any] = asdict(found)
    return plain | {"steadiness": found.steadiness}


def _slope(found: Any) -> str:
    share = f" ({found.slope / found.median:+.1%} of the median)" if found.median else ""
    return f"{'+' if found.slope >= 0 else '-'}{number(abs(found.slope))}{share}"


_POINT: Columns = {
    "run": lambda point: point.run.run_id,
    "created": lambda point: point.run.created_at,
    "verdict": lambda point: point.judgement.verdict,
}
_HISTORY: Columns = {
    "metric": lambda row: row[0],
    "runs": lambda row: row[1].runs,
    "median": lambda row: number(row[1].median),
    "recent": lambda row: number(row[1].recent),
    "change per run": lambda row: _slope(row[1]),
    "r²": lambda row: f"{row[1].r_squared:.2f}",
    "stability": lambda row: row[1].steadiness,
}


@app.command("regress")
def regress(
    run_id: RunArgument,
    against: Annotated[
        str, typer.Option("--against", help="Baseline: a run id, or last-good (the newest good run of the same kind).")
    ] = _LAST_GOOD,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a run for a performance regression against a baseline, for CI.

    Exit codes: 0 no regression (a warning is not one), 3 the run did not complete or measured nothing, 5 regression, 6
    inconclusive (no baseline, or too few measurements).
    """

    async def work(plane: ControlPlane) -> int:
        bench = plane.bench()
        found: Any = await bench.regress(RunId(run_id), against)
        if found is None:
            _say_no_baseline(bench, await plane.store.runs.get(RunId(run_id)), as_json=as_json)
        else:
            if not as_json:
                _say_baseline(bench, found, against)
            print(bench.compared((found,), "json" if as_json else "markdown"), end="")
        return int(bench.regressed(found))

    raise typer.Exit(with_control_plane(store, work))


def _say_baseline(bench: "BenchService", found: Any, against: str) -> None:
    after, before = found.after.run, found.before.run
    chosen = (
        f"the newest good run of the same {bench.baseline_criterion(after)}"
        if against == _LAST_GOOD
        else "given with --against"
    )
    say(f"{after.run_id} against {before.run_id}, {chosen}", style="bold")
    print()


def _say_no_baseline(bench: "BenchService", run: Run, *, as_json: bool) -> None:
    """Print that there is no earlier run (baseline) to compare a run with; with ``as_json`` to standard error."""
    missing = f"no good run of the same {bench.baseline_criterion(run)} was created in the 30 days before {run.run_id}"
    message = f"inconclusive: {missing}; name a run with --against"
    if as_json:
        show_json([])
        errors.print(message, style="yellow", highlight=False, soft_wrap=True)
    else:
        say(message, style="yellow")
