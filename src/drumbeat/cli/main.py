"""The command line's front door: commands, and how errors become one line and an exit code."""

import sys
from typing import Annotated

import click
import typer

from drumbeat import __version__
from drumbeat.cli import listing, store
from drumbeat.cli.demo import demo
from drumbeat.cli.render import errors
from drumbeat.cli.worker import worker
from drumbeat.core.errors import DrumbeatError, StoreUnavailable

EXIT_INPUT = 1  #: what was asked cannot be done: bad input, nothing of that name, a store that is not ready
EXIT_STORE = 2  #: the store did not answer

app = typer.Typer(
    name="drumbeat",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Keeps a fleet of workers in step through one database.",
    epilog="Exit codes: 0 done, 1 it cannot be done (bad input, nothing of that name, the store is not ready), "
    "2 the store did not answer, 130 interrupted. A worker has its own: see drumbeat worker --help.",
)
app.add_typer(store.app, name="store")
app.add_typer(listing.pools, name="pools")
app.add_typer(listing.workers, name="workers")
app.add_typer(listing.events, name="events")
app.add_typer(listing.beats, name="beats")
app.add_typer(listing.runs, name="runs")
app.add_typer(listing.samples, name="samples")
app.add_typer(listing.logs, name="logs")
app.command()(worker)
app.command()(demo)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"drumbeat {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """What every command has in common."""


def main() -> None:
    """Run the command line. Never shows a traceback for what the user can mend."""
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except click.exceptions.Exit as exc:
        sys.exit(exc.exit_code)
    except click.ClickException as exc:
        _complain(exc.format_message())
        sys.exit(EXIT_INPUT)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except StoreUnavailable as exc:
        _complain(str(exc))
        sys.exit(EXIT_STORE)
    except DrumbeatError as exc:
        _complain(str(exc))
        sys.exit(EXIT_INPUT)


def _complain(message: str) -> None:
    errors.print(f"drumbeat: {' '.join(message.split())}", style="red", markup=False, highlight=False, soft_wrap=True)
