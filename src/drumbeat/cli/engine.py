"""drumbeat engine: list the kinds of engines and the named engines, check an engine, and show its workers and their logs."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from drumbeat.cli.options import JsonOption, StoreOption, parse_age, with_control_plane
from drumbeat.cli.render import Columns, say, show, show_json
from drumbeat.composition.engine_check import CheckStep, EngineCheck
from drumbeat.composition.engine_workers import EngineWorker, list_workers, read_logs
from drumbeat.composition.engines import KINDS, EngineKind, EngineReport
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.plain import time_span

app = typer.Typer(no_args_is_help=True, help="Engines, the places where workers run: list, check, show workers and logs.")

_KIND: Columns = {
    "kind": lambda row: row["kind"],
    "what": lambda row: row["what"],
    "extra": lambda row: row["extra"],
    "usable here": lambda row: "yes" if row["problem"] is None else f"no: {row['problem']}",
}
_ENGINE: Columns = {
    "engine": lambda row: row.name,
    "kind": lambda row: row.kind,
    "price/h": lambda row: None if row.price_per_hour is None else f"{row.price_per_hour:g}",
    "starts in": lambda row: time_span(row.traits["usual_start"]) if row.traits else None,
    "traits": lambda row: _traits(row),
    "problem": lambda row: row.problem,
}


@app.command()
def kinds(as_json: JsonOption = False) -> None:
    """List the kinds of engines, the pip extra that each needs, and whether it can be used here."""
    show([_kind_json(each) for each in KINDS.values()], _KIND, as_json=as_json, nothing="no kinds of engines")


def _kind_json(kind: EngineKind) -> Mapping[str, Any]:
    problem = kind.problem
    return {
        "kind": kind.name,
        "what": kind.summary,
        "extra": kind.extra,
        "install": None if kind.extra is None else f"pip install 'drumbeat[{kind.extra}]'",
        "elsewhere": kind.elsewhere,
        "usable": problem is None,
        "problem": problem,
    }


@app.command("list")
def list_engines(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the engines named in engines.toml or drumbeat.toml, and those that need no naming, with traits and prices."""

    async def read(plane: ControlPlane) -> list[EngineReport]:
        return [plane.engines.report(each) for each in plane.engines.list()]

    show(with_control_plane(store, read, create=True), _ENGINE, as_json=as_json, nothing="no engines")


def _traits(report: EngineReport) -> str:
    return ", ".join(name.replace("_", " ") for name, value in report.traits.items() if value is True)


@app.command()
def check(
    name: Annotated[str, typer.Argument(metavar="ENGINE", help="Name of the engine.")],
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", help="Limit for the worker's start, and for its end. Default: 1m, longer for slow engines"),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check an engine with one worker: reach the engine, start the worker, see it join the store, drain it, see it leave.

    Each step is printed with its time, and a failed one with its cause. The worker and its pool are always removed. Exit code 1
    when a step failed.
    """
    within = parse_age(timeout) if timeout else None
    steps: list[CheckStep] = []

    def on_step(step: CheckStep) -> None:
        steps.append(step)
        if not as_json:
            mark = "ok  " if step.ok else "FAIL"
            say(f"{mark}  {step.step:<9} {time_span(step.took):>8}  {step.detail}", style=None if step.ok else "red")

    async def work(plane: ControlPlane) -> bool:
        return await EngineCheck(plane, plane.engines.get(name), on_step, within).run()

    passed = with_control_plane(store, work, create=True) and all(step.ok for step in steps)
    if as_json:
        show_json({"engine": name, "ok": passed, "steps": steps})
    elif passed:
        say(f"engine {name} can run workers", style="green")
    if not passed:
        raise typer.Exit(1)


_WORKER: Columns = {
    "engine": lambda row: row.engine,
    "pool": lambda row: row.pool_id,
    "worker": lambda row: row.worker_id,
    "instance": lambda row: row.ref,
    "state": lambda row: row.state,
    "age": lambda row: row.age,
    "price/h": lambda row: None if row.price_per_hour is None else f"{row.price_per_hour:g}",
    "status": lambda row: row.status,
}


@app.command()
def workers(
    name: Annotated[str | None, typer.Argument(metavar="[ENGINE]", help="Name of the engine. Default: all engines")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the instances of workers in all pools, as their engines report them, with state, age and price.

    Exit code 1 when an engine could not be asked.
    """

    async def read(plane: ControlPlane) -> tuple[list[EngineWorker], Mapping[str, str]]:
        return await list_workers(plane, name)

    found, problems = with_control_plane(store, read, create=True)
    if as_json:
        show_json({"workers": found, "problems": problems})
    else:
        show(found, _WORKER, as_json=False, nothing="no workers run at the engines that answered" if problems else "no workers")
        for engine, problem in problems.items():
            say(f"engine {engine} could not be asked: {problem}", style="red")
    if problems:
        raise typer.Exit(1)


@app.command()
def logs(
    name: Annotated[str, typer.Argument(metavar="ENGINE", help="Name of the engine.")],
    pool: Annotated[str, typer.Argument(metavar="POOL", help="Pool name or run id.")],
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Worker name.")],
    lines: Annotated[int, typer.Option("--lines", min=1, max=100_000, help="Maximum number of lines, the last ones.")] = 200,
    store: StoreOption = None,
) -> None:
    """Print what a worker wrote to its standard output and error, as its engine keeps it."""
    print(with_control_plane(store, lambda plane: read_logs(plane, name, pool, worker, lines)).rstrip("\n"))
