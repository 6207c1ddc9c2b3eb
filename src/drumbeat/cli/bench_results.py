"""drumbeat bench compare, regress and report: what runs came to, side by side and written down."""

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
_FORMS = ("html", "markdown", "csv", "json", "junit", "prometheus")


@app.command("report")
def report(
    run_id: RunArgument,
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", help="A self-contained page.")] = None,
    output: Annotated[
        list[str] | None, typer.Option("--output", "-o", metavar="FILE", help="The ending says which form. Repeatable.")
    ] = None,
    form: Annotated[str | None, typer.Option("--form", help=f"Print one of {', '.join(_FORMS)}.")] = None,
    store: StoreOption = None,
) -> None:
    """Write a run down: HTML, Markdown, CSV, JSON, JUnit or Prometheus text. Without a file: Markdown on standard output."""
    files = {path: form_of(path) for path in output or ()} | ({html: "html"} if html else {})
    if form is not None and form not in _FORMS:
        raise InvalidInput(f"expected one of {', '.join(_FORMS)} as --form, got {form!r}")

    async def work(plane: ControlPlane) -> None:
        desk = plane.bench()
        for path, each in files.items():
            write(path, await desk.report(RunId(run_id), each))
            say(f"report: {path}")
        if form is not None or not files:
            print(await desk.report(RunId(run_id), form or "markdown"), end="")

    with_control_plane(store, work)


@app.command("enrich")
def enrich(run_id: RunArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Try again to complete a run's result with its database's own totals."""
    found = with_control_plane(store, lambda plane: plane.bench().enrich(RunId(run_id)))
    if as_json:
        show_json({"status": found.enrichment_status, "error": found.enrichment_error, **found.custom_metrics["server"]})
    else:
        say(f"{found.enrichment_status}" + (f": {found.enrichment_error}" if found.enrichment_error else ""))


@app.command("executions")
def executions(
    run_id: RunArgument,
    load: Annotated[bool, typer.Option("--load", help="First copy them into the store, from files on this host.")] = False,
    kind: Annotated[str | None, typer.Option("--kind", help="Only this kind of operation.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only those that failed.")] = False,
    error_class: Annotated[
        str | None, typer.Option("--error-class", help="Only those that failed so: DATABASE_ERROR, QUERY_TIMEOUT, CONNECTION …")
    ] = None,
    error: Annotated[str | None, typer.Option("--error", help="Only those that failed with this SQLSTATE.")] = None,
    slowest: Annotated[bool, typer.Option("--slowest", help="The longest first, instead of the earliest.")] = False,
    limit: LimitOption = 50,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Pass over so many.")] = 0,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Single operations of a run, as they are in the store."""

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
    """Why no operation was found: none matches, none was copied, or none was recorded."""
    if there := await plane.store.executions.count(run_id):
        return f"none of the {there:,} operations in the store is like that; ask for less"
    if files := await plane.store.results.list_files(run_id):
        rows = sum(file.rows for file in files)
        return f"none are in the store, {rows:,} are in files of the workers; copy them with --load"
    return f"{run_id} recorded no operations: it did none, or its recording.sampling is 0"


@app.command("compare")
def compare(
    run_ids: Annotated[list[str], typer.Argument(metavar="RUN RUN …", help="Two to five runs; the first is the reference.")],
    html: Annotated[str | None, typer.Option("--html", metavar="FILE", help="A self-contained page.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Runs side by side: what differs, and whether the difference is shown or only noise."""

    async def work(plane: ControlPlane) -> None:
        desk = plane.bench()
        found = await desk.compare([RunId(each) for each in run_ids])
        if html:
            write(html, desk.compared(found, "html"))
            say(f"report: {html}")
        print(desk.compared(found, "json" if as_json else "markdown"), end="")

    with_control_plane(store, work)


@app.command("trend")
def trend(
    run_id: RunArgument,
    limit: Annotated[int, typer.Option("--limit", min=2, max=200, help="So many runs, the newest of them.")] = 20,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """How the figures of a run went over the runs of its kind before it: of the same template, else the same configuration."""
    found = with_control_plane(store, lambda plane: plane.bench().trend(RunId(run_id), limit))
    if as_json:
        show_json(_trend_json(found))
        return
    if not found.points:
        say(f"{run_id} and the runs before it measured nothing")
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
    "made": lambda point: point.run.created_at,
    "verdict": lambda point: point.judgement.verdict,
}
_HISTORY: Columns = {
    "figure": lambda row: row[0],
    "runs": lambda row: row[1].runs,
    "median": lambda row: number(row[1].median),
    "recent": lambda row: number(row[1].recent),
    "from run to run": lambda row: _slope(row[1]),
    "r²": lambda row: f"{row[1].r_squared:.2f}",
    "runs agree": lambda row: row[1].steadiness,
}


@app.command("regress")
def regress(
    run_id: RunArgument,
    against: Annotated[str, typer.Option("--against", help="A run's id, or last-good: the newest good one of its kind.")] = (
        _LAST_GOOD
    ),
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Whether a run is worse than another, for CI.

    Exit codes: 0 it is not, 3 the run did not complete or came to nothing, 5 it is, 6 nothing can be said (nothing
    comparable, or too little).
    """

    async def work(plane: ControlPlane) -> int:
        desk = plane.bench()
        found: Any = await desk.regress(RunId(run_id), against)
        if found is None:
            _say_no_baseline(desk, await plane.store.runs.get(RunId(run_id)), as_json=as_json)
        else:
            if not as_json:
                _say_baseline(desk, found, against)
            print(desk.compared((found,), "json" if as_json else "markdown"), end="")
        return int(desk.regressed(found))

    raise typer.Exit(with_control_plane(store, work))


def _say_baseline(desk: "BenchService", found: Any, against: str) -> None:
    after, before = found.after.run, found.before.run
    chosen = f"the newest good run of the same {desk.same_what(after)}" if against == _LAST_GOOD else "as asked"
    say(f"{after.run_id} against {before.run_id}, {chosen}", style="bold")
    print()


def _say_no_baseline(desk: "BenchService", run: Run, *, as_json: bool) -> None:
    """On standard error where a program reads the other."""
    before = f"no good run of the same {desk.same_what(run)} was made in the 30 days before {run.run_id}"
    told = f"inconclusive: {before}; name one with --against"
    if as_json:
        show_json([])
        errors.print(told, style="yellow", highlight=False, soft_wrap=True)
    else:
        say(told, style="yellow")
