"""drumbeat trigger: list, check, install, remove, fire and serve triggers."""

import asyncio
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from drumbeat.cli.options import JsonOption, StoreOption, run, with_control_plane
from drumbeat.cli.pool_beats import finish
from drumbeat.cli.render import Columns, say, show, show_json
from drumbeat.composition.offline import remove_cron_triggers
from drumbeat.composition.plane import ControlPlane, logging_to_stderr, until_stopped

app = typer.Typer(
    no_args_is_help=True, help="Triggers that start beats: cron schedules, webhooks and others from triggers.yml."
)

FileOption = Annotated[
    Path | None,
    typer.Option("--file", help="Triggers file. Default: triggers.yml, or else trigger_registry.yml", show_default=False),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Trigger name.")]


@app.command("list")
def list_triggers(file: FileOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List triggers: the beat that each runs, when it last fired, the outcome, and when it fires next."""

    async def work(plane: ControlPlane) -> None:
        service = plane.triggers(file)
        last = await service.last_fired()
        if as_json:
            show_json(
                [{**asdict(each), "due": service.due(each), "last_fired": last.get(each.name)} for each in service.triggers]
            )
            return
        columns: Columns = {
            "trigger": lambda trigger: trigger.name,
            "type": lambda trigger: trigger.type,
            "starts": lambda trigger: trigger.machine,
            "pool": lambda trigger: trigger.pool_id or "all",
            "schedule": lambda trigger: trigger.schedule,
            "next (UTC)": service.due,
            "last (UTC)": lambda trigger: last[trigger.name].at if trigger.name in last else None,
            "outcome": lambda trigger: last[trigger.name].outcome if trigger.name in last else None,
        }
        show(service.triggers, columns, as_json=False, nothing="the file has no triggers")

    with_control_plane(store, work)


@app.command()
def check(file: FileOption = None, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Check the triggers file, its pools and its secrets, without changing anything. Exit code 1 when something is wrong."""

    async def work(plane: ControlPlane) -> tuple[int, list[str]]:
        service = plane.triggers(file)
        return len(service.triggers), list(await service.problems())

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
    """Install the cron triggers in your crontab, replacing earlier ones of the same file. Other lines stay."""
    lines = with_control_plane(store, lambda plane: plane.triggers(file).install())
    for line in lines:
        say(line)
    say(f"installed: {len(lines)}")


@app.command()
def remove(
    file: FileOption = None, store: Annotated[str | None, typer.Option("--store", help="Not used: no store is needed.")] = None
) -> None:
    """Remove the triggers of the file from your crontab. Other lines stay. The file itself may be gone."""
    lines = run(remove_cron_triggers(file))
    say(f"removed: {len(lines)}")


@app.command()
def fire(
    name: NameArgument,
    pool: Annotated[str | None, typer.Option("--pool", help="Pool, if the trigger names none.")] = None,
    file: FileOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fire a trigger now. Exit code 1 when an action failed."""
    finish(with_control_plane(store, lambda plane: plane.triggers(file).fire(name, pool)), as_json=as_json)


@app.command()
def manifest(
    name: NameArgument,
    image: Annotated[str, typer.Option("--image", help="Container image with the drumbeat command.")],
    secret_name: Annotated[
        str, typer.Option("--secret-name", help="Kubernetes secret that holds the store URL as DRUMBEAT_STORE.")
    ],
    file: FileOption = None,
    store: StoreOption = None,
) -> None:
    """Print a Kubernetes CronJob manifest for a trigger."""

    async def work(plane: ControlPlane) -> str:
        return plane.triggers(file).manifest(name, image, secret_name)

    say(with_control_plane(store, work).rstrip())


@app.command()
def serve(
    host: Annotated[str, typer.Option("--host", help="Address to listen on for webhooks.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port to listen on; 0 for any free port.")] = 8765,
    file: FileOption = None,
    store: StoreOption = None,
) -> None:
    """Run the schedules of the triggers file and listen for its webhooks, until interrupted."""

    def ready(address: str) -> None:
        say(f"listening on {address}")
        sys.stdout.flush()

    async def work(plane: ControlPlane) -> None:
        service, stop = plane.triggers(file), asyncio.Event()
        with until_stopped(stop):
            await service.serve(host, port, ready, stop)

    with logging_to_stderr(logging.INFO):
        with_control_plane(store, work)
