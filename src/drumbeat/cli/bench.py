"""drumbeat bench: benchmark a database."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from drumbeat.bench.model import DriveOutcome, DriveProgress, DriveRequest, ms
from drumbeat.cli import bench_examples, bench_explain, bench_export, bench_prices, bench_results, bench_runs, bench_templates
from drumbeat.cli.live import sparkline
from drumbeat.cli.options import JsonOption, refuse_nan, run
from drumbeat.cli.render import Columns, console, errors, show_json, table
from drumbeat.cli.worker import worker
from drumbeat.composition import offline
from drumbeat.composition.plane import until_stopped

app = typer.Typer(no_args_is_help=True, help="Benchmark a database: create tables, generate load, analyse results.")
app.command("worker")(worker)
app.add_typer(bench_templates.app, name="template")
app.add_typer(bench_examples.app)
app.add_typer(bench_runs.app)
app.add_typer(bench_results.app)
app.add_typer(bench_explain.app)
app.add_typer(bench_export.app)
app.add_typer(bench_prices.app)

_YEAR, _DAY = 31_536_000, 86_400  #: in seconds
_INTERRUPTED = 130
_NOTHING_SUCCEEDED = 3  #: exit code if every operation failed; the same as in bench run


UrlArgument = Annotated[str, typer.Argument(metavar="URL", help="Database under test, such as postgresql://host/db.")]
WorkloadOption = Annotated[str, typer.Option("--workload", help="Standard workload, such as tpcb, ycsb-a or mixed.")]
ScaleOption = Annotated[
    float, typer.Option("--scale", callback=refuse_nan, min=0.001, max=1_000_000, help="Scale factor of the workload.")
]


@app.command("prepare")
def prepare(
    url: UrlArgument,
    workload: WorkloadOption = "mixed",
    scale: ScaleOption = 1,
    fresh: Annotated[bool, typer.Option("--fresh", help="Drop the tables first.")] = False,
) -> None:
    """Create the tables of a workload and fill them with rows. If it is interrupted, run it again: it continues."""
    with _progress_bar() as bar:
        run(offline.prepare(url, workload, scale, fresh=fresh, on_progress=_advance(bar)))
    console.print(f"{workload} at scale {scale:g} is ready", highlight=False)


@app.command("drive")
def drive(
    url: UrlArgument,
    connections: Annotated[int, typer.Option("--connections", "-c", min=1, max=20_000, help="Number of connections.")] = 8,
    duration: Annotated[
        float, typer.Option("--duration", "-T", callback=refuse_nan, min=0.1, max=_YEAR, help="Seconds to measure.")
    ] = 30,
    warmup: Annotated[float, typer.Option("--warmup", callback=refuse_nan, min=0, max=_YEAR, help="Seconds of warmup.")] = 2,
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
            help="Operations per second, however fast the database answers (open loop).",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Random seed, to repeat the same values.")] = None,
    record: Annotated[str | None, typer.Option("--record", help="Folder for a Parquet record of every operation.")] = None,
    timeout: Annotated[
        float,
        typer.Option("--timeout", callback=refuse_nan, min=0.001, max=_DAY, help="Seconds until an operation times out."),
    ] = 30,
    as_json: JsonOption = False,
) -> None:
    """Generate load from this process alone and print throughput and latency. Ctrl-C stops it and prints the results so far.

    Exit codes: 0 done, 3 every operation failed or none finished, 130 interrupted.
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
    outcome, interrupted = _drive(url, request, quiet=as_json)
    if as_json:
        show_json(outcome.figures)
    else:
        _print_outcome(outcome)
    if interrupted:
        raise typer.Exit(_INTERRUPTED)
    if outcome.figures["errors"] >= outcome.figures["operations"]:
        raise typer.Exit(_NOTHING_SUCCEEDED)


def _drive(url: str, request: DriveRequest, *, quiet: bool) -> tuple[DriveOutcome, bool]:
    """Generate the load and show it live. Returns the measured figures, and whether the user interrupted it."""
    view = _View(request)

    async def work() -> tuple[DriveOutcome, bool]:
        stop = asyncio.Event()
        with until_stopped(stop):
            return await offline.drive(url, request, view.update, _print_note, stop), stop.is_set()

    if quiet or not console.is_terminal:
        return run(work())
    with Live(get_renderable=view.draw, console=console, refresh_per_second=4, transient=True):
        return run(work())


def _print_note(text: str) -> None:
    errors.print(f"note: {text}", style="yellow", highlight=False, soft_wrap=True)


class _View:
    """Live view of throughput, latency percentiles and errors."""

    def __init__(self, request: DriveRequest) -> None:
        self._request = request
        self._rates: list[float] = []
        self._last: DriveProgress | None = None

    def update(self, progress: DriveProgress) -> None:
        self._last = progress
        self._rates = [*self._rates, progress.operations_per_second][-60:]

    def draw(self) -> Text:
        last = self._last
        if last is None:
            return Text(f"opening {self._request.connections} connections …")
        return Text(
            f"{last.phase or 'PREPARING':<11} {last.operations_per_second:>9,.0f} ops/s  p50 {ms(last.p50_ms)}  "
            f"p95 {ms(last.p95_ms)}  p99 {ms(last.p99_ms)}  errors {last.errors}  connections {last.connections}\n"
            f"{sparkline(self._rates)}"
        )


def _print_outcome(outcome: DriveOutcome) -> None:
    found = outcome.figures
    opened, requested = found["held"], found["connections"]
    console.print(
        f"{found['throughput']:,.0f} ops/s over {found['seconds']:.1f} s "
        f"on {opened if opened == requested else f'{opened} of {requested}'} connections: "
        f"{found['operations']:,} operations, {found['errors']:,} errors",
        style="bold",
        highlight=False,
        soft_wrap=True,
    )
    total = {"operations": found["operations"], "errors": found["errors"], **found["response"]}
    console.print(table([*found["kinds"].items(), ("all", total)], _columns()))
    cost = found["client_cpu_us_per_op"]
    console.print(f"client: {cost:.1f} µs of CPU per operation" if cost else "client: CPU was not measured", highlight=False)
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

    def advance(name: str, done: int, total: int) -> None:
        if name not in tasks:
            tasks[name] = bar.add_task(name, total=total)
        bar.update(tasks[name], completed=done)

    return advance
