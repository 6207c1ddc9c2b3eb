"""Entry point of the command line: runs a command and turns its errors into one line and an exit code."""

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from drumbeat.cli import fast_start
from drumbeat.core.errors import DrumbeatError, StoreUnavailable, first_error

EXIT_INPUT = 1  #: bad input, an unknown name, or a store that is not ready
EXIT_STORE = 2  #: the store did not answer
EXIT_INTERRUPTED = 130


def __getattr__(name: str) -> Any:
    """Build ``app``, the complete Typer application, on first use."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from drumbeat.cli.commands import full_app

    return full_app()


def main() -> None:
    """Run the command line. Errors the user can fix are shown without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot encode a character shows ? instead of failing
    with _quiet_logger(), _working_folder_on_path():
        sys.exit(_run())


@contextmanager
def _quiet_logger() -> Iterator[None]:
    """Suppress log output during the block: control loops record errors in the store, and workers set up their own logging."""
    logger, handler = logging.getLogger("drumbeat"), logging.NullHandler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def _working_folder_on_path() -> Iterator[None]:
    """Add the working folder to the import path during the block, so that job handlers in it are found."""
    before = list(sys.path)
    if not {"", os.getcwd()} & set(before):
        sys.path.insert(0, os.getcwd())
    try:
        yield
    finally:
        sys.path[:] = before


def _run() -> int:
    try:
        code, message = _execute()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _output_closed()
    except Exception as exc:
        error = first_error(exc)
        if not isinstance(error, DrumbeatError):
            raise
        return _print_error(str(error), EXIT_STORE if isinstance(error, StoreUnavailable) else EXIT_INPUT)
    return _print_error(message, code)


def _execute() -> tuple[int, str]:
    if (command := fast_start.command(sys.argv[1:])) is not None:
        return command(), ""
    from drumbeat.cli.commands import run

    return run()


def _print_error(message: str, code: int) -> int:
    line = " ".join(message.split())
    if line:
        from drumbeat.cli.render import errors

        errors.print(f"drumbeat: {line}", style="red", soft_wrap=True)
    return code


def _output_closed() -> int:
    """Discard further output without a message, as the reader of standard output has closed it. Returns the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_INPUT
