"""The command line's front door: commands, and how errors become one line and an exit code."""

import io
import logging
import os
import sys
from typing import Annotated

import typer

from drumbeat import __version__
from drumbeat.cli import bench, listing, store
from drumbeat.cli.demo import demo
from drumbeat.cli.render import errors
from drumbeat.cli.worker import worker
from drumbeat.core.errors import DrumbeatError, StoreUnavailable

EXIT_INPUT = 1  #: what was asked cannot be done: bad input, nothing of that name, a store that is not ready
EXIT_STORE = 2  #: the store did not answer
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="drumbeat",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Keeps a fleet of workers in step through one database.",
    epilog="Exit codes: 0 done, 1 it cannot be done (bad input, nothing of that name, the store is not ready), "
    "2 the store did not answer, 130 interrupted. A worker has its own: see drumbeat worker --help.",
)
app.add_typer(store.app, name="store")
app.add_typer(bench.app, name="bench")
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no word for a dash shall not end the command
    logging.getLogger("drumbeat").addHandler(logging.NullHandler())  # what fails in a beat is in its row; a worker logs
    sys.exit(_run())


def _run() -> int:
    try:
        code = int(app(prog_name="drumbeat", standalone_mode=False) or 0)
        sys.stdout.flush()
    except typer.TyperException as exc:
        return _complain(_usage(exc), EXIT_INPUT)
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _nobody_reads()
    except StoreUnavailable as exc:
        return _complain(str(exc), EXIT_STORE)
    except DrumbeatError as exc:
        return _complain(str(exc), EXIT_INPUT)
    return code


def _usage(exc: typer.TyperException) -> str:
    """What is wrong with the arguments, and where to read on; nothing where help was shown already."""
    message, context = exc.format_message().strip(), getattr(exc, "ctx", None)
    return f"{message} See: {context.command_path} --help" if message and context else message


def _complain(message: str, code: int) -> int:
    line = " ".join(message.split())
    if line:
        errors.print(f"drumbeat: {line}", style="red", soft_wrap=True)
    return code


def _nobody_reads() -> int:
    """Whoever read our output has left: be as quiet as if it were all read."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_INPUT
