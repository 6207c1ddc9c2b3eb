"""drumbeat trigger: list, check, install, remove, pull and keep what wakes beats."""

import asyncio
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from drumbeat.cli.options import JsonOption, StoreOption, with_control_plane
from drumbeat.cli.pool_beats import finish
from drumbeat.cli.render import Columns, say, show, show_json
from drumbeat.composition.plane import ControlPlane, logging_to_stderr, until_stopped

app = typer.Typer(no_args_is_help=True, help="Triggers: what wakes a beat when nobody is running.")

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file", help="Where the triggers are. Default: triggers.yml, or else trigger_registry.yml", show_default=False
    ),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A trigger of the file.")]


@app.command("list")
def list_triggers(file: FileOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """The triggers of a file, with what they wake, when they last fired and what came of it, and when they come due next."""

    async def work(plane: ControlPlane) -> None:
        desk = plane.triggers(file)
        last = await desk.last_fired()
        if as_json:
            show_json([{**asdict(each), "due": desk.due(each), "last_fired": last.get(each.name)} for each in desk.triggers])
            return
        columns: Columns = {
            "trigger": lambda trigger: trigger.name,
            "type": lambda trigger: trigger.type,
            "wakes": lambda trigger: trigger.machine,
            "pool": lambda trigger: trigger.pool_id or "all",
            "schedule": lambda trigger: trigger.schedule,
            "next (UTC)": desk.due,
            "last (UTC)": lambda trigger: last[trigger.name].at if trigger.name in last else None,
            "outcome": lambda trigger: last[trigger.name].outcome if trigger.name in last else None,
        }
        show(desk.triggers, columns, as_json=False, nothing="the file has no triggers")

    with_control_plane(store, work)


@app.command()
def check(file: FileOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Read the file, look for the pools and the secrets it names, and change nothing. Exit code 1 when something is wrong."""

    async def work(plane: ControlPlane) -> tuple[int, list[str]]:
        desk = plane.triggers(file)
        return len(desk.triggers), list(await desk.problems())

    count, problems = with_control_plane(store, work)
    if as_json:
        show_json({"triggers": count, "problems": problems})
    else:
        for problem in problems:
            say(f"problem: {problem}", style="red")
        say(f"triggers: {count}, problems: {len(problems)}")
    if problems:
        raise typer.Exit(1)


@app.command()
def install(file: FileOption = None, store: StoreOption = None) -> None:
    """Write the file's cron triggers into your crontab, in place of those it had there; other lines stay as they are."""
    lines = with_control_plane(store, lambda plane: plane.triggers(file).install())
    for line in lines:
        say(line)
    say(f"installed: {len(lines)}")


@app.command()
def remove(file: FileOption = None, store: StoreOption = None) -> None:
    """Take the file's lines out of your crontab, and no other."""
    lines = with_control_plane(store, lambda plane: plane.triggers(file).remove())
    say(f"removed: {len(lines)}")


@app.command()
def fire(
    name: NameArgument,
    pool: Annotated[str | None, typer.Option("--pool", help="The pool, where the trigger names none.")] = None,
    file: FileOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pull a trigger now, whatever it waits for. Exit code 1 when something could not be done."""
    finish(with_control_plane(store, lambda plane: plane.triggers(file).fire(name, pool)), as_json=as_json)


@app.command()
def manifest(
    name: NameArgument,
    image: Annotated[str, typer.Option("--image", help="A container image that has the command drumbeat.")],
    secret_name: Annotated[
        str, typer.Option("--secret-name", help="The Kubernetes secret that holds the store's URL as DRUMBEAT_STORE.")
    ],
    file: FileOption = None,
    store: StoreOption = None,
) -> None:
    """Print a Kubernetes CronJob that runs a trigger's beat on its schedule."""

    async def work(plane: ControlPlane) -> str:
        return plane.triggers(file).manifest(name, image, secret_name)

    say(with_control_plane(store, work).rstrip())


@app.command()
def serve(
    host: Annotated[str, typer.Option("--host", help="Where to listen for webhooks.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="On which port; 0 takes a free one.")] = 8765,
    file: FileOption = None,
    store: StoreOption = None,
) -> None:
    """Keep the file's schedules and listen for its webhooks until interrupted."""

    def ready(address: str) -> None:
        say(f"listening on {address}")
        sys.stdout.flush()

    async def work(plane: ControlPlane) -> None:
        desk, stop = plane.triggers(file), asyncio.Event()
        with until_stopped(stop):
            await desk.serve(host, port, ready, stop)

    with logging_to_stderr(logging.INFO):
        with_control_plane(store, work)
