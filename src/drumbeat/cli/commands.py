"""Builds the command line from its groups and commands."""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.main import get_command

#: command groups, each as module:attribute in this package
GROUPS: Mapping[str, str] = {
    "store": "store:app",
    "bench": "bench:app",
    "connection": "connections:app",
    "pool": "pool:app",
    "fleet": "fleet:app",
    "engine": "engine:app",
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
def full_app() -> typer.Typer:
    """Return the Typer application with every command."""
    return _app_with((*GROUPS, *COMMANDS))


def app_for(words: Sequence[str]) -> typer.Typer:
    """Return the Typer application for these arguments. If the first is a known command, only its module is imported."""
    return _app_with(words[:1]) if words and words[0] in {*GROUPS, *COMMANDS} else full_app()


def _app_with(names: Sequence[str]) -> typer.Typer:
    app = typer.Typer(
        name="drumbeat",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Run job queues, worker fleets and database benchmarks, coordinated through one database.",
        epilog="Exit codes: 0 done, 1 bad input, unknown name or store not ready, 2 the store did not answer, 130 interrupted. "
        "Workers have other exit codes: see drumbeat worker --help.",
    )
    app.callback()(root)
    for name in names:
        if name in GROUPS:
            app.add_typer(_load(GROUPS[name]), name=name)
        else:
            app.command(name)(_load(COMMANDS[name]))
    return app


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(f"drumbeat.cli.{module}"), name)


def _print_version(enabled: bool) -> None:
    if enabled:
        from drumbeat import __version__

        print(f"drumbeat {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Accept the options that stand before the command, such as --version."""


def run() -> tuple[int, str]:
    """Run the command in ``sys.argv``. Returns its exit code, and a message if its arguments are wrong."""
    try:
        command = get_command(app_for(sys.argv[1:]))  # calling the app directly would replace sys.excepthook
        return int(command(prog_name="drumbeat", standalone_mode=False) or 0), ""
    except typer.TyperException as exc:
        return 1, _usage_error(exc)
    except typer.Abort:
        raise KeyboardInterrupt from None


def _usage_error(exc: typer.TyperException) -> str:
    """Return a message that says what is wrong with the arguments and which help to read; empty if help was printed."""
    message, context = exc.format_message().strip(), getattr(exc, "ctx", None)
    return f"{message} See: {context.command_path} --help" if message and context else message
