"""Every command, under its name: where the command line is put together."""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.main import get_command

#: the groups of commands, each as module:name in this folder
GROUPS: Mapping[str, str] = {
    "store": "store:app",
    "bench": "bench:app",
    "connection": "connections:app",
    "pool": "pool:app",
    "fleet": "fleet:app",
    "pools": "listing:pools",
    "workers": "listing:workers",
    "events": "listing:events",
    "beats": "listing:beats",
    "runs": "listing:runs",
    "samples": "listing:samples",
    "logs": "listing:logs",
    "trigger": "triggers:app",
}
COMMANDS: Mapping[str, str] = {"worker": "worker:worker", "serve": "serve:serve", "demo": "demo:demo"}


@cache
def whole() -> typer.Typer:
    """The whole command line."""
    return _with((*GROUPS, *COMMANDS))


def asked(words: Sequence[str]) -> typer.Typer:
    """As much of it as these words need: a group or command that is named at once is all that is loaded."""
    return _with(words[:1]) if words and words[0] in {*GROUPS, *COMMANDS} else whole()


def _with(names: Sequence[str]) -> typer.Typer:
    app = typer.Typer(
        name="drumbeat",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Keeps a fleet of workers in step through one database.",
        epilog="Exit codes: 0 done, 1 it cannot be done (bad input, nothing of that name, the store is not ready), "
        "2 the store did not answer, 130 interrupted. A worker has its own: see drumbeat worker --help.",
    )
    app.callback()(root)
    for name in names:
        if name in GROUPS:
            app.add_typer(_at(GROUPS[name]), name=name)
        else:
            app.command(name)(_at(COMMANDS[name]))
    return app


def _at(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"drumbeat.cli.{module}"), name)


def _print_version(wanted: bool) -> None:
    if wanted:
        from drumbeat import __version__

        print(f"drumbeat {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """What every command has in common."""


def run() -> tuple[int, str]:
    """Do what the command line asks; its exit code, and what is wrong with its arguments."""
    try:
        command = get_command(asked(sys.argv[1:]))  # an app that is called itself would take over sys.excepthook
        return int(command(prog_name="drumbeat", standalone_mode=False) or 0), ""
    except typer.TyperException as exc:
        return 1, _usage(exc)
    except typer.Abort:
        raise KeyboardInterrupt from None


def _usage(exc: typer.TyperException) -> str:
    """What is wrong with the arguments, and where to read on; nothing where help was shown already."""
    message, context = exc.format_message().strip(), getattr(exc, "ctx", None)
    return f"{message} See: {context.command_path} --help" if message and context else message
