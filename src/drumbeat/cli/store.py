"""drumbeat store: create, check, migrate, prune and copy the store."""

from typing import Annotated

import typer

from drumbeat.cli.copying import copy as copy_command
from drumbeat.cli.options import JsonOption, StoreOption, parse_age as parse_age, run, settings_for, with_control_plane
from drumbeat.cli.render import progress, say, show_json, text
from drumbeat.composition.plane import open_control_plane
from drumbeat.store.interface import StoreReport

app = typer.Typer(
    no_args_is_help=True, help="Create, check, migrate, prune and copy the store (the database Drumbeat runs on)."
)


@app.command()
def init(store: StoreOption = None) -> None:
    """Create the tables of the store, or update them if they are older. Safe to repeat."""
    _migrate(store, create=True)


@app.command()
def migrate(store: StoreOption = None) -> None:
    """Migrate the tables to the current schema version. Can be run on several machines at once."""
    _migrate(store, create=False)


def _migrate(store: str | None, *, create: bool) -> None:
    async def work() -> tuple[list[int], StoreReport]:
        settings = settings_for(store)
        async with open_control_plane(settings, create=create, check_version=False) as plane:
            applied = list(await plane.store.upkeep.migrate())
            return applied, await plane.store.upkeep.check()

    applied, report = run(work())
    done = f"applied {', '.join(map(str, applied))}" if applied else "nothing to apply"
    say(f"{report.location}: schema version {report.schema_version} ({done})")


@app.command()
def check(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Check the store without changing it. Exit code 1 when something is wrong."""

    async def work() -> StoreReport:
        async with open_control_plane(settings_for(store), check_version=False) as plane:
            return await plane.store.upkeep.check()

    report = run(work())
    if as_json:
        show_json(report)
    else:
        _print(report)
    if report.problems:
        raise typer.Exit(1)


def _print(report: StoreReport) -> None:
    say(f"{report.location}  ({report.server})")
    say(f"schema version {report.schema_version} of {report.latest_version}, clock {text(report.now)} UTC")
    filled = {table: rows for table, rows in report.rows.items() if rows}
    uncounted = "not counted: the schema is older" if 0 < report.schema_version < report.latest_version else "none yet"
    say("rows: " + (", ".join(f"{table} {rows}" for table, rows in filled.items()) or uncounted))
    for limit in report.limits:
        say(f"limit: {limit}")
    for problem in report.problems:
        say(f"problem: {problem}", style="red")
    if not report.problems:
        say("no problem found", style="green")


@app.command()
def prune(
    older_than: Annotated[str, typer.Option("--older-than", help="Minimum age, such as 12h, 30d or 4w.")] = "30d",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete old samples, logs, beats and ended workers, and old events of finished runs or about single workers."""
    age = parse_age(older_than, "--older-than")
    with progress("deleted") as update:
        counts = with_control_plane(store, lambda plane: plane.store.upkeep.prune(age, update))
    if as_json:
        show_json(counts)
    else:
        say("deleted: " + ", ".join(f"{table} {rows}" for table, rows in counts.items()))


app.command("copy")(copy_command)
