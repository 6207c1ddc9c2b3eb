"""Runs a fork server: python -m drumbeat.cli.fork_server [IDLE_SECONDS], or drumbeat pool forkserver.

The fork server has imported the modules of workers and checkers, and forks a process on request. That is faster than starting
Python. It exits after IDLE_SECONDS without a request.
"""

import os
import signal
import sys
from collections.abc import Sequence
from datetime import timedelta

from drumbeat.cli.forked import run_command, worker_modules
from drumbeat.core.errors import DrumbeatError
from drumbeat.settings import load_settings
from drumbeat.triggers.model import FIRE

_CHECKER = ("drumbeat.cli.fire", "drumbeat.pool.checker", "drumbeat.spawn.local", "drumbeat.triggers.detached")


def run_request(words: Sequence[str]) -> int:
    """Run what a client requested, a beat (pass of a control loop) or a command, in this forked process."""
    if list(words[:1]) != [FIRE]:
        return run_command(words)
    from drumbeat.cli.fire import fire

    return fire(words[1])


def serve(store: str | None, idle: timedelta | None) -> None:
    """Run the fork server until SIGTERM, or until no request came for ``idle``. Raises AlreadyExists if one is running."""
    from drumbeat.composition.plane import serve_forks

    settings = load_settings(os.environ, store=store)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        serve_forks(settings, run_request, (*worker_modules(settings.store), *_CHECKER), idle)
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    try:
        serve(None, timedelta(seconds=float(sys.argv[1])) if sys.argv[1:] else None)
    except DrumbeatError as exc:
        sys.exit(f"drumbeat: {exc}")
