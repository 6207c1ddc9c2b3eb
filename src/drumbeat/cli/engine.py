"""drumbeat engine: list the kinds of engines and the named engines, check an engine, and show its workers and their logs."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer

from drumbeat.cli.engine_options import refuse_local_store
from drumbeat.cli.options import JsonOption, StoreOption, parse_age, with_control_plane
from drumbeat.cli.render import Columns, say, show, show_json
from drumbeat.composition.check_steps import CLEAN_UP, CheckStep
from drumbeat.composition.engine_check import EngineCheck
from drumbeat.composition.engine_kinds import KINDS, EngineKind, EngineReport
from drumbeat.composition.engine_workers import EngineWorker, list_workers, read_logs
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import InvalidSettings
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
    """List the engines in engines.toml and drumbeat.toml, and those that exist without settings, with traits and prices."""

    async def read(plane: ControlPlane) -> list[EngineReport]:
        return [*plane.engines.reports()]

    show(with_control_plane(store, read, create=True), _ENGINE, as_json=as_json, nothing="no engines")


def _traits(report: EngineReport) -> str:
    return ", ".join(name.replace("_", " ") for name, value in report.traits.items() if value is True)


@app.command()
def check(
    name: Annotated[str, typer.Argument(metavar="ENGINE", help="Name of the engine.")],
    host: Annotated[
        str | None, typer.Option("--host", help="Name of one host of the engine. Default: all its hosts, one after another")
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout",
            help="Time limit for a worker's start, and for its end, such as 90 (seconds) or 2m. "
            "Default: 1m, longer for slow engines",
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check an engine with one worker: contact the engine, start the worker, wait until it joins the store, and drain it.

    An engine with hosts is checked on each host. Each step is printed with its time, and a failed step with its cause. The
    workers and their pools are always removed. Exit code 1 when a step failed.
    """
    within = _limit(timeout) if timeout else None
    steps: list[CheckStep] = []

    def on_step(step: CheckStep) -> None:
        steps.append(step)
        if not as_json:
            _print_step(step)

    async def work(plane: ControlPlane) -> bool:
        return await EngineCheck(plane, plane.engines.get(name), on_step, within, host).run()

    try:
        if (refusal := _store_refusal(store, name)) is not None:
            on_step(CheckStep(step="settings", ok=False, took=timedelta(), detail=refusal))
        passed = refusal is None and with_control_plane(store, work, create=True) and all(step.ok for step in steps)
    except KeyboardInterrupt:
        if not as_json:
            say(f"the check of engine {name} was interrupted; {_left(steps)}", style="red")
        raise
    if as_json:
        show_json({"engine": name, "ok": passed, "steps": steps})
    elif passed:
        say(f"engine {name} can run workers" + _on_hosts(steps), style="green")
    else:
        failed = ", ".join(dict.fromkeys(_failed_at(step) for step in steps if not step.ok))
        say(f"engine {name} failed its check ({failed}); {_left(steps)}", style="red")
    if not passed:
        raise typer.Exit(1)


def _store_refusal(store: str | None, engine: str) -> str | None:
    """Return why the engine's workers cannot reach the store, judged by its URL; None if they can."""
    try:
        refuse_local_store(store, engine)
    except InvalidSettings as exc:
        return str(exc)
    return None


def _limit(text: str) -> timedelta:
    """Parse a number of seconds, such as 20, or a duration such as 2m."""
    return parse_age(f"{text}s" if re.fullmatch(r"[0-9.]+", text.strip()) else text, "--timeout")


def _print_step(step: CheckStep) -> None:
    mark = "ok  " if step.ok else "FAIL"
    place = "" if step.host is None else f"{step.host}: "
    say(f"{mark}  {step.step:<9} {time_span(step.took):>8}  {place}{step.detail}", style=None if step.ok else "red")


def _failed_at(step: CheckStep) -> str:
    return step.step if step.host is None else f"{step.step} on {step.host}"


def _on_hosts(steps: Sequence[CheckStep]) -> str:
    hosts = list(dict.fromkeys(step.host for step in steps if step.host is not None))
    return f" on {', '.join(hosts)}" if hosts else ""


def _left(steps: Sequence[CheckStep]) -> str:
    """Return a sentence that says whether a failed check has left a worker or a pool behind."""
    if any(step.step == CLEAN_UP and not step.ok for step in steps):
        return f"see the line {CLEAN_UP!r} above for what it could not remove"
    return "the check left nothing behind"


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

    Exit code 1 when an engine, or one of its hosts, did not answer: workers there are not shown.
    """

    async def read(plane: ControlPlane) -> tuple[list[EngineWorker], Mapping[str, str]]:
        return await list_workers(plane, name)

    found, problems = with_control_plane(store, read, create=True)
    if as_json:
        show_json({"workers": found, "problems": problems})
    else:
        show(found, _WORKER, as_json=False, nothing="no workers run at the engines that answered" if problems else "no workers")
        for engine, problem in problems.items():
            say(f"engine {engine}, or one of its hosts, did not answer: {problem}", style="red")
    if problems:
        raise typer.Exit(1)


@app.command()
def logs(
    name: Annotated[str, typer.Argument(metavar="ENGINE", help="Name of the engine.")],
    pool: Annotated[str, typer.Argument(metavar="POOL", help="Pool name or run id.")],
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Worker name.")],
    lines: Annotated[int, typer.Option("--lines", min=1, max=100_000, help="Maximum number of lines, from the end.")] = 200,
    store: StoreOption = None,
) -> None:
    """Print a worker's standard output and standard error, as stored by its engine."""
    print(with_control_plane(store, lambda plane: read_logs(plane, name, pool, worker, lines)).rstrip("\n"))
