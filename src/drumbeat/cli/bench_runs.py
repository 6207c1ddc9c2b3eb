"""drumbeat bench run and its kin: plan, start, watch, stop, list, show, run again, remove."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from drumbeat.cli.bench_outcome import form_of, print_notes, print_outcome, print_plan, write
from drumbeat.cli.bench_templates import SetOption, read_document
from drumbeat.cli.live import watched
from drumbeat.cli.options import JsonOption, LimitOption, StoreOption, control_plane, run, with_control_plane
from drumbeat.cli.render import Columns, console, errors, say, show, show_json, table
from drumbeat.composition.plane import ControlPlane, on_stop_signals, until_stopped
from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.run import RUN_ENDED, Run, RunId, RunStatus

if TYPE_CHECKING:
    from drumbeat.bench.model import RunJudgement
    from drumbeat.composition.plane import BenchService

app = typer.Typer()

SourceArgument = Annotated[
    str, typer.Argument(metavar="TEMPLATE|FILE", help="A template by name or id, or a YAML or JSON file (- is standard input).")
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's id.")]
ReportOption = Annotated[
    list[str] | None, typer.Option("--report", metavar="FILE", help="Write a report; the ending says which.")
]
ExitStatusOption = Annotated[
    bool,
    typer.Option("--exit-status", help="End with the exit code that bench run would have ended with, 6 if it has not ended."),
]
_FILES = (".yml", ".yaml", ".json")

_RUN: Columns = {
    "run": lambda row: row[0].run_id,
    "name": lambda row: row[0].name,
    "status": lambda row: row[0].status,
    "reason": lambda row: row[0].completion_reason,
    "verdict": lambda row: row[1].verdict,
    "mode": lambda row: row[0].config.get("load_mode"),
    "scaling": lambda row: (row[0].config.get("scaling") or {}).get("mode"),
    "operations": lambda row: f"{row[0].operations:,}",
    "errors": lambda row: row[0].errors,
    "ops/s": lambda row: f"{row[0].qps:,.0f}",
    "made": lambda row: row[0].created_at,
}


def is_file(source: str) -> bool:
    return source == "-" or source.endswith(_FILES) or Path(source).is_file()


async def read_source(desk: "BenchService", source: str, settings: list[str] | None) -> Any:
    if is_file(source):
        return await desk.document(read_document(source), settings or (), is_text=True)
    return await desk.document(source, settings or ())


@app.command("plan")
def plan(source: SourceArgument, settings: SetOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """What would be started, and what to beware of, without starting it."""

    async def work(plane: ControlPlane) -> Any:
        desk = plane.bench()
        return await desk.plan(await read_source(desk, source, settings))

    found = with_control_plane(store, work, create=True)
    if as_json:
        show_json(found)
    else:
        print_plan(found)
    if found.errors:
        raise typer.Exit(1)


@app.command("run")
def run_benchmark(
    source: SourceArgument,
    settings: SetOption = None,
    reports: ReportOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start it and leave it to: drumbeat bench orchestrate.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a benchmark and watch it. Ctrl-C stops it cleanly; a second one leaves it to another orchestrator.

    Exit codes: 0 completed and nothing missed that was asked of it, 3 the run failed, was cancelled or came to nothing (every
    operation failed, nothing was measured, no stable level), 4 an objective or the target throughput was missed (bounds
    reached) or not measured, 6 it has not ended: it was left to another orchestrator. With --detach: 0 once it is started;
    bench watch --exit-status tells the rest.
    """
    forms = {path: form_of(path) for path in reports or ()}

    async def work() -> int:
        async with control_plane(store, create=True) as plane:
            desk = plane.bench()
            document = await read_source(desk, source, settings)
            made, ahead = await desk.create(document, None if is_file(source) else source)
            if not as_json:
                print_notes(ahead)
            return await _started(plane, desk, made, detach=detach, as_json=as_json, reports=forms)

    raise typer.Exit(run(work()))


async def _started(
    plane: ControlPlane, desk: "BenchService", made: Run, *, detach: bool, as_json: bool, reports: dict[str, str]
) -> int:
    await desk.start(made.run_id)
    if detach:
        show_json({"run_id": made.run_id}) if as_json else say(f"{made.run_id} will be run by: drumbeat bench orchestrate")
        return 0
    if not as_json:
        say(f"{made.name} is {made.run_id}")
    await conducted(plane, desk, made.run_id, quiet=as_json)
    return await concluded(desk, made.run_id, as_json=as_json, reports=reports)


async def conducted(plane: ControlPlane, desk: "BenchService", run_id: RunId, *, quiet: bool) -> RunStatus:
    """Orchestrate a run and show it, until it has ended."""
    leave = asyncio.Event()
    async with _signals(desk, run_id, leave), watched(plane.store, run_id, quiet=quiet):
        return await desk.conduct(run_id, leave)


@asynccontextmanager
async def _signals(desk: "BenchService", run_id: RunId, leave: asyncio.Event) -> AsyncIterator[None]:
    """The first signal stops the run, the second leaves it."""
    asked = asyncio.Event()

    def heard(_: str) -> None:
        if asked.is_set():
            leave.set()
        asked.set()

    async def stop_when_asked() -> None:
        while await asked.wait():
            errors.print("stopping: workers finish what they have begun …", style="yellow")
            try:
                await desk.stop(run_id)
                return
            except StoreUnavailable as exc:
                errors.print(f"not stopped: {exc}; interrupt again to try again", style="red", soft_wrap=True)
                asked.clear()

    with on_stop_signals(heard):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(stop_when_asked())
            try:
                yield
            finally:
                task.cancel()


async def concluded(desk: "BenchService", run_id: RunId, *, as_json: bool, reports: dict[str, str]) -> int:
    """Print how a run ended, write its reports, and answer with its exit code."""
    record = await desk.record(run_id)
    for path, form in reports.items():
        write(path, await desk.report(run_id, form))
    if as_json:
        print(await desk.report(run_id, "json"), end="")
    else:
        print_outcome(desk, record, list(reports))
    return int(desk.judge(record).gate)


@app.command("orchestrate")
def orchestrate(
    once: Annotated[bool, typer.Option("--once", help="Leave when no run is left that nobody orchestrates.")] = False,
    store: StoreOption = None,
) -> None:
    """Take over every run that is under way and that nobody orchestrates, until interrupted."""

    async def work() -> None:
        async with control_plane(store, create=not once) as plane:
            desk, leave = plane.bench(), asyncio.Event()
            with until_stopped(leave):
                await desk.orchestrate(leave, once=once, on_run=lambda found: say(f"{found.run_id}: orchestrated from here"))

    run(work())


@app.command("status")
def status(run_id: RunArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """How a run stands, by the store alone."""
    found = with_control_plane(store, lambda plane: plane.bench().status(RunId(run_id)))
    if as_json:
        show_json(found)
        return
    kept = found.run
    led = found.led_by or ("nobody (it would be taken over by: drumbeat bench orchestrate)" if found.is_orphan else "nobody")
    say(f"{kept.name} · {kept.run_id} · {kept.status} · {kept.phase or 'not begun'}", style="bold")
    say(f"orchestrated by {led}; {kept.operations:,} operations, {kept.errors:,} errors, {kept.qps:,.0f} ops/s")
    columns: Columns = {
        "worker": lambda worker: worker.worker_id,
        "status": lambda worker: worker.status,
        "target": lambda worker: worker.target,
        "holds": lambda worker: worker.applied_target,
        "operations": lambda worker: f"{worker.operations:,}",
        "errors": lambda worker: worker.errors,
        "error": lambda worker: worker.error,
    }
    if found.workers:
        console.print(table(found.workers, columns))


@app.command("watch")
def watch(run_id: RunArgument, exit_status: ExitStatusOption = False, store: StoreOption = None) -> None:
    """A run as it goes, until it has ended.

    Exit codes: 0, or with --exit-status those of bench run.
    """

    async def work() -> int:
        async with control_plane(store) as plane:
            await plane.store.runs.get(RunId(run_id))
            async with watched(plane.store, RunId(run_id)) as screen:
                await screen.ended.wait()
            code = await concluded(plane.bench(), RunId(run_id), as_json=False, reports={})
        return code if exit_status else 0

    raise typer.Exit(run(work()))


@app.command("stop")
def stop(
    run_id: RunArgument,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Until every worker has left.")] = True,
    store: StoreOption = None,
) -> None:
    """Cancel a run. If nobody orchestrates it any more, this command sees to its end."""

    async def work(plane: ControlPlane) -> RunStatus:
        desk = plane.bench()
        found = await desk.stop(RunId(run_id))
        return await desk.conduct(RunId(run_id), asyncio.Event()) if wait and found not in RUN_ENDED else found

    say(f"{run_id} is {with_control_plane(store, work)}")


@app.command("list")
def list_runs(
    search: Annotated[str | None, typer.Option("--search", help="Part of a run's name.")] = None,
    statuses: Annotated[
        list[RunStatus] | None, typer.Option("--status", case_sensitive=False, help="Only these. Repeatable.")
    ] = None,
    template: Annotated[str | None, typer.Option("--template", help="Only runs of this template.")] = None,
    load_mode: Annotated[str | None, typer.Option("--load-mode", help="CONCURRENCY, QPS or FIND_MAX_CONCURRENCY.")] = None,
    scaling_mode: Annotated[str | None, typer.Option("--scaling-mode", help="AUTO, BOUNDED or FIXED.")] = None,
    since: Annotated[datetime | None, typer.Option("--since", help="Made at this time (UTC) or later.")] = None,
    until: Annotated[datetime | None, typer.Option("--until", help="Made before this time (UTC).")] = None,
    limit: LimitOption = 50,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Pass over so many.")] = 0,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Runs, newest first."""

    async def work(plane: ControlPlane) -> Any:
        template_id = (await plane.store.templates.get(template)).template_id if template else None
        found = await plane.store.runs.list(
            statuses=statuses or (),
            search=search,
            template_id=template_id,
            load_mode=load_mode.upper() if load_mode else None,
            scaling_mode=scaling_mode.upper() if scaling_mode else None,
            since=_utc(since),
            until=_utc(until),
            limit=limit,
            offset=offset,
        )
        judgements = await plane.bench().judgements(found)
        return [(each, judgements[each.run_id]) for each in found]

    rows = with_control_plane(store, work)
    if as_json:
        show_json([_listed(*row) for row in rows])
    else:
        show(rows, _RUN, as_json=False, nothing="no such runs; try: drumbeat bench run FILE")


def _listed(run: Run, judgement: "RunJudgement") -> dict[str, Any]:
    """A row of the list for programs: the run's own fields, and its verdict."""
    row: dict[str, Any] = msgspec.to_builtins(run, str_keys=True)
    return row | {"verdict": judgement.verdict, "verdict_reason": judgement.reason}


def _utc(moment: datetime | None) -> datetime | None:
    from datetime import UTC

    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


@app.command("show")
def show_run(
    run_id: RunArgument, exit_status: ExitStatusOption = False, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """What a run measured and how it ended.

    Exit codes: 0, or with --exit-status those of bench run.
    """

    async def work(plane: ControlPlane) -> int:
        return await concluded(plane.bench(), RunId(run_id), as_json=as_json, reports={})

    code = with_control_plane(store, work)
    raise typer.Exit(code if exit_status else 0)


@app.command("rerun")
def rerun(
    run_id: RunArgument,
    settings: SetOption = None,
    reports: ReportOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Start it and leave it to: drumbeat bench orchestrate.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the same again, or with some settings changed."""
    forms = {path: form_of(path) for path in reports or ()}

    async def work() -> int:
        async with control_plane(store) as plane:
            desk = plane.bench()
            made, ahead = await desk.recreate(RunId(run_id), settings or ())
            if not as_json:
                print_notes(ahead)
            return await _started(plane, desk, made, detach=detach, as_json=as_json, reports=forms)

    raise typer.Exit(run(work()))


@app.command("rm")
def remove(run_id: RunArgument, store: StoreOption = None) -> None:
    """Remove a run, everything that was measured in it, and the files of its operations on this machine."""
    removed = with_control_plane(store, lambda plane: plane.bench().remove(RunId(run_id)))
    say(f"removed {run_id}" + (f" and {removed.files} files" if removed.files else ""))
    for place in removed.left:
        say(f"not deleted: {place}")
