"""The command line's front door: the short way or the whole, and how errors become one line and an exit code."""

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from drumbeat.cli import fast_start
from drumbeat.core.errors import DrumbeatError, StoreUnavailable

EXIT_INPUT = 1  #: what was asked cannot be done: bad input, nothing of that name, a store that is not ready
EXIT_STORE = 2  #: the store did not answer
EXIT_INTERRUPTED = 130


def __getattr__(name: str) -> Any:
    """``app``: the whole command line, put together when somebody asks for it."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from drumbeat.cli.commands import whole

    return whole()


def main() -> None:
    """Run the command line. Never shows a traceback for what the user can mend."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that has no word for a dash shall not end the command
    with _quiet_logger(), _modules_of_this_folder():
        sys.exit(_run())


@contextmanager
def _quiet_logger() -> Iterator[None]:
    """Log lines that nobody asked for are not printed: what fails in a beat is in its row, and a worker sets up its logging."""
    ours, nothing = logging.getLogger("drumbeat"), logging.NullHandler()
    ours.addHandler(nothing)
    try:
        yield
    finally:
        ours.removeHandler(nothing)


@contextmanager
def _modules_of_this_folder() -> Iterator[None]:
    """Handlers are found in the folder the command is run in, and so is what they import later: as with ``python -m``."""
    before = list(sys.path)
    if not {"", os.getcwd()} & set(before):
        sys.path.insert(0, os.getcwd())
    try:
        yield
    finally:
        sys.path[:] = before


def _run() -> int:
    try:
        code, complaint = _do()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _nobody_reads()
    except StoreUnavailable as exc:
        return _complain(str(exc), EXIT_STORE)
    except DrumbeatError as exc:
        return _complain(str(exc), EXIT_INPUT)
    return _complain(complaint, code)


def _do() -> tuple[int, str]:
    if (command := fast_start.command(sys.argv[1:])) is not None:
        return command(), ""
    from drumbeat.cli.commands import run

    return run()


def _complain(message: str, code: int) -> int:
    line = " ".join(message.split())
    if line:
        from drumbeat.cli.render import errors

        errors.print(f"drumbeat: {line}", style="red", soft_wrap=True)
    return code


def _nobody_reads() -> int:
    """Whoever read our output has left: be as quiet as if it were all read."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_INPUT
