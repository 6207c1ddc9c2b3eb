"""drumbeat bench plan, run, start, watch, stop, list, show, rerun and rm: benchmark runs."""

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from drumbeat.cli.bench_conduct import orchestrate_and_watch, warn_of_workers
from drumbeat.cli.bench_outcome import (
    form_of,
    print_folders,
    print_notes,
    print_outcome,
    print_plan,
    say_verdict,
    write,
)
from drumbeat.cli.bench_templates import SetOption, is_file, read_document
from drumbeat.cli.engine_options import EngineOption, refuse_local_store, warn_of_store
from drumbeat.cli.live import not_started, watched
from drumbeat.cli.options import JsonOption, LimitOption, StoreOption, open_plane, run, with_control_plane
from drumbeat.cli.render import Columns, console, errors, say, show, show_json, table
from drumbeat.cli.worker_columns import place_columns, problem
from drumbeat.composition.plane import ControlPlane, until_stopped
from drumbeat.core.engine import DEFAULT_ENGINE
from drumbeat.core.errors import InvalidInput
from drumbeat.core.recovery import unconfirmed
from drumbeat.core.run import RUN_ENDED, Run, RunId, RunStatus

if TYPE_CHECKING:
    from drumbeat.bench.model import RunJudgement
    from drumbeat.composition.plane import BenchService, RunReport

app = typer.Typer()

SourceArgument = Annotated[
    str, typer.Argument(metavar="TEMPLATE|FILE", help="Template name or id, or a YAML or JSON file (- for standard input).")
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Run id.")]
ReportOption = Annotated[
    list[str] | None,
    typer.Option("--report", metavar="FILE", help="Write a report; the extension selects the format. Not with --detach."),
]
ExitStatusOption = Annotated[
    bool,
    typer.Option("--exit-status", help="Use the exit code of bench run: 6 if the run has not ended."),
]
DetachOption = Annotated[bool, typer.Option("--detach", help="Start the run and exit; drumbeat bench orchestrate runs it.")]

_RUN: Columns = {
    "run": lambda row: row[0].run_id,
    "name": lambda row: row[0].name,
    "status": lambda row: row[0].status,
    "reason": lambda row: row[0].completion_reason,
    "verdict": lambda row: row[1].short,
    "mode": lambda row: row[0].config.get("load_mode"),
    "scaling": lambda row: (row[0].config.get("scaling") or {}).get("mode"),
    "operations": lambda row: f"{row[0].operations:,}",
    "errors": lambda row: row[0].errors,
    "ops/s": lambda row: f"{row[0].qps:,.0f}",
    "created": lambda row: row[0].created_at,
}


async def read_source(bench: "BenchService", source: str, settings: list[str] | None) -> Any:
    if is_file(source):
        return await bench.document(read_document(source), settings or (), is_text=True)
    return await bench.document(source, settings or ())


def _with_engine(settings: list[str] | None, engine: str | None) -> list[str]:
    return [*(settings or ()), *(() if engine is None else (f"scaling.engine={json.dumps(engine)}",))]


@app.command("plan")
def plan(
    source: SourceArgument,
    settings: SetOption = None,
    engine: EngineOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a run would start, with warnings, without starting it."""

    async def work(plane: ControlPlane) -> Any:
        bench = plane.bench()
        return await bench.plan(await read_source(bench, source, _with_engine(settings, engine)))

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
    engine: EngineOption = None,
    reports: ReportOption = None,
    detach: DetachOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a benchmark and watch it. Ctrl-C stops it cleanly; a second Ctrl-C leaves it to another orchestrator.

    Exit codes: 0 completed with all objectives met, 3 the run failed, was cancelled or has no result (every operation failed,
    nothing was measured, no load was stable), 4 an objective or the target throughput was missed or not measured, 6 the run
    has not ended: it was left to another orchestrator. With --detach: 0 once the run is started; bench watch --exit-status
    returns the other codes.
    """
    forms = _forms(reports, detach=detach)
    refuse_local_store(store, engine)

    async def work() -> int:
        async with open_plane(store, create=True) as plane:
            bench = plane.bench()
            document = await read_source(bench, source, _with_engine(settings, engine))
            created, planned = await bench.create(document, None if is_file(source) else source)
            if not as_json:
                print_notes(planned)
            return await _start(plane, bench, created, detach=detach, as_json=as_json, reports=forms)

    raise typer.Exit(run(work()))


def _forms(reports: list[str] | None, *, detach: bool) -> dict[str, str]:
    """Return the format of each report to write when the run has ended. Raises InvalidInput, also for any with --detach."""
    if reports and detach:
        raise InvalidInput(
            "expected --detach or --report, got both: with --detach, this command exits before the run has ended; "
            "when it has, write the report with: drumbeat bench report RUN --output FILE"
        )
    return {path: form_of(path) for path in reports or ()}


@app.command("start")
def start(
    run_id: RunArgument,
    reports: ReportOption = None,
    detach: DetachOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a run that was created but not started (status PREPARED), and watch it, as bench run does.

    Exit codes: those of bench run.
    """
    forms = _forms(reports, detach=detach)

    async def work() -> int:
        async with open_plane(store) as plane:
            prepared = await plane.store.runs.get(RunId(run_id))
            plane.engines.check_reach(_engine_of(prepared) or DEFAULT_ENGINE)
            return await _start(plane, plane.bench(), prepared, detach=detach, as_json=as_json, reports=forms)

    raise typer.Exit(run(work()))


async def _start(
    plane: ControlPlane, bench: "BenchService", created: Run, *, detach: bool, as_json: bool, reports: dict[str, str]
) -> int:
    run_id = created.run_id
    warn_of_store(plane, _engine_of(created))
    await bench.start(run_id)
    if detach:
        show_json({"run_id": run_id}) if as_json else say(f"started {run_id}; run it with: drumbeat bench orchestrate")
        return 0
    if not as_json:
        say(f"started {run_id}: {created.name}")
    await orchestrate_and_watch(plane, bench, run_id, quiet=as_json)
    return await finish(bench, run_id, as_json=as_json, reports=reports)


def _engine_of(run: Run) -> str | None:
    """Return the engine that a run's template names, or several as ``a,b``; None if it names none."""
    return (run.config.get("scaling") or {}).get("engine")


async def finish(bench: "BenchService", run_id: RunId, *, as_json: bool, reports: dict[str, str]) -> int:
    """Print how a run ended and write its reports. Returns its exit code."""
    record = await bench.summarised(run_id)
    judgement = await bench.judgement(record.run)
    for path, form in reports.items():
        write(path, await bench.report(run_id, form))
    if as_json:
        print(await bench.report(run_id, "json"), end="")
    else:
        print_outcome(bench, record, list(reports), judgement)
        print_folders(await bench.folders_elsewhere(run_id))
    return int(judgement.gate)


@app.command("orchestrate")
def orchestrate(
    once: Annotated[bool, typer.Option("--once", help="Exit when no run is left without an orchestrator.")] = False,
    store: StoreOption = None,
) -> None:
    """Run an orchestrator, which controls every started run that has none, until interrupted."""

    async def work() -> None:
        async with open_plane(store, create=not once) as plane:
            bench, leave = plane.bench(), asyncio.Event()
            with until_stopped(leave):
                await bench.orchestrate(leave, once=once, on_run=lambda found: say(f"orchestrating {found.run_id}"))

    run(work())


@app.command("status")
def status(run_id: RunArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show the status of a run, its verdict and its workers."""

    async def work(plane: ControlPlane) -> tuple["RunReport", "RunJudgement"]:
        report = await plane.bench().status(RunId(run_id))
        return report, await plane.bench().judgement(report.run)

    found, judgement = with_control_plane(store, work)
    if as_json:
        report = {"run": found.run, "workers": found.workers, "led_by": found.led_by}
        show_json(report | _verdict_json(judgement))
        return
    row = found.run
    say(f"{row.name} · {row.run_id} · {row.status} · {row.phase or 'not started'}", style="bold")
    say_verdict(judgement)
    say(f"orchestrator: {found.led_by or 'none'}; {row.operations:,} operations, {row.errors:,} errors, {row.qps:,.0f} ops/s")
    columns: Columns = {
        "worker": lambda worker: worker.worker_id,
        "status": lambda worker: worker.shown_status,
        **place_columns(found.workers),
        "target": lambda worker: worker.target,
        "connections": lambda worker: worker.applied_target,
        "operations": lambda worker: f"{worker.operations:,}",
        "errors": lambda worker: worker.errors,
        "error": problem,
    }
    if found.workers:
        console.print(table(found.workers, columns))


@app.command("watch")
def watch(run_id: RunArgument, exit_status: ExitStatusOption = False, store: StoreOption = None) -> None:
    """Watch a run until it has ended.

    Exit codes: 0, or with --exit-status those of bench run; 6 at once for a run that was not started.
    """

    async def work() -> int:
        async with open_plane(store) as plane:
            found, bench = await plane.store.runs.get(RunId(run_id)), plane.bench()
            if exit_status and found.status is RunStatus.PREPARED:
                errors.print(not_started(found.run_id), style="yellow", soft_wrap=True)
                return int((await bench.judgement(found)).gate)
            async with watched(plane.store, RunId(run_id), bench.judgement) as screen:
                await screen.ended.wait()
            code = await finish(bench, RunId(run_id), as_json=False, reports={})
        return code if exit_status else 0

    raise typer.Exit(run(work()))


@app.command("stop")
def stop(
    run_id: RunArgument,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until every worker has ended.")] = True,
    store: StoreOption = None,
) -> None:
    """Cancel a run. If it has no orchestrator, this command stops its workers. Also ends workers that an ended run has left.

    Exit code 1 if workers might still run, because their engine does not answer.
    """

    async def work(plane: ControlPlane) -> tuple[RunStatus, bool]:
        bench = plane.bench()
        found = await bench.stop(RunId(run_id))
        is_over = found in RUN_ENDED and not unconfirmed((await bench.status(RunId(run_id))).workers)
        if wait and not is_over:
            found = await bench.conduct(RunId(run_id), asyncio.Event())
        return found, wait and warn_of_workers(await bench.status(RunId(run_id)))

    status, may_run = with_control_plane(store, work)
    say(f"{run_id} is {status}")
    if may_run:
        raise typer.Exit(1)


@app.command("list")
def list_runs(
    search: Annotated[str | None, typer.Option("--search", help="Part of the run's name.")] = None,
    statuses: Annotated[
        list[RunStatus] | None, typer.Option("--status", case_sensitive=False, help="Only runs with this status. Repeatable.")
    ] = None,
    template: Annotated[str | None, typer.Option("--template", help="Only runs of this template (name or id).")] = None,
    load_mode: Annotated[str | None, typer.Option("--load-mode", help="Only CONCURRENCY, QPS or FIND_MAX_CONCURRENCY.")] = None,
    scaling_mode: Annotated[str | None, typer.Option("--scaling-mode", help="Only AUTO, BOUNDED or FIXED.")] = None,
    since: Annotated[datetime | None, typer.Option("--since", help="Created at this time (UTC) or later.")] = None,
    until: Annotated[datetime | None, typer.Option("--until", help="Created before this time (UTC).")] = None,
    limit: LimitOption = 50,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Number of rows to skip.")] = 0,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List benchmark runs with their verdicts, newest first."""

    async def work(plane: ControlPlane) -> Any:
        template_id = await plane.bench().template_id(template) if template else None
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
        show_json([run_json(*row) for row in rows])
    else:
        show(rows, _RUN, as_json=False, nothing="no matching runs; start one with: drumbeat bench run FILE")


def run_json(run: Run, judgement: "RunJudgement") -> dict[str, Any]:
    """Return a run as one entry of the JSON list of runs: its fields, its verdict and the reason for the verdict."""
    row: dict[str, Any] = msgspec.to_builtins(run, str_keys=True)
    return row | _verdict_json(judgement)


def _verdict_json(judgement: "RunJudgement") -> dict[str, Any]:
    return {"verdict": judgement.verdict, "verdict_reason": judgement.reason, "is_orphan": judgement.is_orphan}


def _utc(moment: datetime | None) -> datetime | None:
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


@app.command("show")
def show_run(
    run_id: RunArgument, exit_status: ExitStatusOption = False, store: StoreOption = None, as_json: JsonOption = False
) -> None:
    """Show the results of a run and how it ended.

    Exit codes: 0, or with --exit-status those of bench run.
    """

    async def work(plane: ControlPlane) -> int:
        return await finish(plane.bench(), RunId(run_id), as_json=as_json, reports={})

    code = with_control_plane(store, work)
    raise typer.Exit(code if exit_status else 0)


@app.command("rerun")
def rerun(
    run_id: RunArgument,
    settings: SetOption = None,
    engine: EngineOption = None,
    reports: ReportOption = None,
    detach: DetachOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a benchmark again, optionally with changed settings."""
    forms = _forms(reports, detach=detach)
    refuse_local_store(store, engine)

    async def work() -> int:
        async with open_plane(store) as plane:
            bench = plane.bench()
            created, planned = await bench.recreate(RunId(run_id), _with_engine(settings, engine))
            if not as_json:
                print_notes(planned)
            return await _start(plane, bench, created, detach=detach, as_json=as_json, reports=forms)

    raise typer.Exit(run(work()))


@app.command("rm")
def remove(run_id: RunArgument, store: StoreOption = None) -> None:
    """Remove a run, its results, and the files of its recorded operations on this machine."""
    removed = with_control_plane(store, lambda plane: plane.bench().remove(RunId(run_id)))
    say(f"removed {run_id}" + (f" and {removed.files} files" if removed.files else ""))
    for path in removed.left:
        say(f"not deleted: {path}")
