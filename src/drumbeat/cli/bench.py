"""drumbeat bench: load on a database."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from drumbeat.bench.model import DriveOutcome, DriveProgress, DriveRequest, ms
from drumbeat.cli import bench_examples, bench_prices, bench_results, bench_runs, bench_templates
from drumbeat.cli.live import sparkline
from drumbeat.cli.options import JsonOption, refuse_nan, run
from drumbeat.cli.render import Columns, console, errors, show_json, table
from drumbeat.cli.worker import worker
from drumbeat.composition import offline
from drumbeat.composition.plane import until_stopped

app = typer.Typer(no_args_is_help=True, help="Load on a database: prepare its tables, drive it, read how it bends.")
app.command("worker")(worker)
app.add_typer(bench_templates.app, name="template")
app.add_typer(bench_examples.app)
app.add_typer(bench_runs.app)
app.add_typer(bench_results.app)
app.add_typer(bench_prices.app)

_YEAR, _DAY = 31_536_000, 86_400  #: seconds
_INTERRUPTED = 130
_CAME_TO_NOTHING = 3  #: as of bench run


UrlArgument = Annotated[str, typer.Argument(metavar="URL", help="The database under test, such as postgresql://host/db.")]
WorkloadOption = Annotated[str, typer.Option("--workload", help="A standard workload, such as tpcb, ycsb-a or mixed.")]
ScaleOption = Annotated[
    float, typer.Option("--scale", callback=refuse_nan, min=0.001, max=1_000_000, help="The workload's scale factor.")
]


@app.command("prepare")
def prepare(
    url: UrlArgument,
    workload: WorkloadOption = "mixed",
    scale: ScaleOption = 1,
    fresh: Annotated[bool, typer.Option("--fresh", help="Drop the tables first.")] = False,
) -> None:
    """Create and load a workload's tables. Goes on where it was interrupted."""
    with _progress_bar() as bar:
        run(offline.prepare(url, workload, scale, fresh=fresh, on_progress=_advance(bar)))
    console.print(f"{workload} at scale {scale:g} is ready", highlight=False)


@app.command("drive")
def drive(
    url: UrlArgument,
    connections: Annotated[int, typer.Option("--connections", "-c", min=1, max=20_000, help="How many to hold.")] = 8,
    duration: Annotated[
        float, typer.Option("--duration", "-T", callback=refuse_nan, min=0.1, max=_YEAR, help="Seconds to measure.")
    ] = 30,
    warmup: Annotated[float, typer.Option("--warmup", callback=refuse_nan, min=0, max=_YEAR, help="Seconds before that.")] = 2,
    workload: WorkloadOption = "mixed",
    scale: ScaleOption = 1,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            "-R",
            callback=refuse_nan,
            min=0.1,
            max=1_000_000_000,
            help="Operations a second, whatever the database does (open loop).",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="For the same values again.")] = None,
    record: Annotated[str | None, typer.Option("--record", help="A folder for every operation, as Parquet files.")] = None,
    timeout: Annotated[
        float,
        typer.Option("--timeout", callback=refuse_nan, min=0.001, max=_DAY, help="Seconds until an operation is given up."),
    ] = 30,
    as_json: JsonOption = False,
) -> None:
    """Drive a database from this process alone, and see what it takes. Ctrl-C ends it and shows what was measured so far.

    Exit codes: 0 it was driven, 3 every operation failed or none ended, 130 it was interrupted.
    """
    request = DriveRequest(
        workload=workload,
        scale=scale,
        connections=connections,
        duration=timedelta(seconds=duration),
        warmup=timedelta(seconds=warmup),
        rate=rate,
        seed=seed,
        record=record,
        limit=timedelta(seconds=timeout),
    )
    outcome, interrupted = _watched(url, request, quiet=as_json)
    if as_json:
        show_json(outcome.figures)
    else:
        _print_outcome(outcome)
    if interrupted:
        raise typer.Exit(_INTERRUPTED)
    if outcome.figures["errors"] >= outcome.figures["operations"]:
        raise typer.Exit(_CAME_TO_NOTHING)


def _watched(url: str, request: DriveRequest, *, quiet: bool) -> tuple[DriveOutcome, bool]:
    """How it went, and whether it was ended before its time."""
    view = _View(request)

    async def work() -> tuple[DriveOutcome, bool]:
        stop = asyncio.Event()
        with until_stopped(stop):
            return await offline.drive(url, request, view.note, _note, stop), stop.is_set()

    if quiet or not console.is_terminal:
        return run(work())
    with Live(get_renderable=view.draw, console=console, refresh_per_second=4, transient=True):
        return run(work())


def _note(text: str) -> None:
    errors.print(f"note: {text}", style="yellow", highlight=False, soft_wrap=True)


class _View:
    """Throughput, percentiles and errors as they come."""

    def __init__(self, request: DriveRequest) -> None:
        self._request = request
        self._rates: list[float] = []
        self._last: DriveProgress | None = None

    def note(self, progress: DriveProgress) -> None:
        self._last = progress
        self._rates = [*self._rates, progress.operations_per_second][-60:]

    def draw(self) -> Text:
        now = self._last
        if now is None:
            return Text(f"opening {self._request.connections} connections …")
        return Text(
            f"{now.phase or 'PREPARING':<11} {now.operations_per_second:>9,.0f} ops/s  p50 {ms(now.p50_ms)}  "
            f"p95 {ms(now.p95_ms)}  p99 {ms(now.p99_ms)}  errors {now.errors}  connections {now.connections}\n"
            f"{sparkline(self._rates)}"
        )


def _print_outcome(outcome: DriveOutcome) -> None:
    found = outcome.figures
    held, asked = found["held"], found["connections"]
    console.print(
        f"{found['throughput']:,.0f} ops/s over {found['seconds']:.1f} s "
        f"on {held if held == asked else f'{held} of {asked}'} connections: "
        f"{found['operations']:,} operations, {found['errors']:,} errors",
        style="bold",
        highlight=False,
        soft_wrap=True,
    )
    everything = {"operations": found["operations"], "errors": found["errors"], **found["response"]}
    console.print(table([*found["kinds"].items(), ("all", everything)], _columns()))
    cost = found["client_cpu_us_per_op"]
    console.print(f"client: {cost:.1f} µs of CPU per operation" if cost else "client: nothing was measured", highlight=False)
    for warning in outcome.warnings:
        console.print(f"note: {warning}", style="yellow", highlight=False, soft_wrap=True)


def _columns() -> Columns:
    figures = {"mean": "mean_ms", "p50": "p50_ms", "p95": "p95_ms", "p99": "p99_ms", "p99.9": "p99.9_ms", "max": "max_ms"}
    return {
        "kind": lambda row: row[0],
        "operations": lambda row: f"{row[1]['operations']:,}",
        "errors": lambda row: row[1]["errors"],
        **{title: _figure(name) for title, name in figures.items()},
    }


def _figure(name: str) -> Callable[[Any], str]:
    return lambda row: ms(row[1][name])


def _progress_bar() -> Progress:
    return Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console)


def _advance(bar: Progress) -> Callable[[str, int, int], None]:
    tasks: dict[str, TaskID] = {}

    def advance(name: str, done: int, whole: int) -> None:
        if name not in tasks:
            tasks[name] = bar.add_task(name, total=whole)
        bar.update(tasks[name], completed=done)

    return advance
