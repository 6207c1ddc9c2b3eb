"""Runs one beat (pass of a pool's control loop) after a job was pushed: python -m drumbeat.cli.fire FIRING, where FIRING
describes the beat as JSON.

It does not import the command line, because imports take most of the time between a push and the start of a worker. Workers
are forked from a separate fork server, which imports their modules while the beat reads the store and decides.
"""

import json
import logging
import os
import sys
from typing import TYPE_CHECKING

from drumbeat.cli.forked import run_command, worker_modules
from drumbeat.cli.session import run
from drumbeat.composition.plane import forking, logging_to_stderr, open_control_plane
from drumbeat.core.errors import DrumbeatError
from drumbeat.settings import load_settings
from drumbeat.triggers.model import Firing

if TYPE_CHECKING:
    from drumbeat.composition.plane import ForkConnector


def main() -> int:
    """Run the beat (pass of a control loop) that the first argument describes as JSON, with a fork server for its workers."""
    try:
        settings = load_settings(os.environ)
    except DrumbeatError as exc:
        return _print_error(exc)
    with forking(run_command, worker_modules(settings.store)) as connector:
        return fire(sys.argv[1], connector)


def fire(firing: str, connector: "ForkConnector | None" = None) -> int:
    """Run the beat (pass of a control loop) that ``firing`` describes as JSON. Returns 0, or 1 if it could not be run."""
    try:
        with logging_to_stderr(logging.WARNING):
            run(_fire(Firing.from_json(json.loads(firing)), connector))
    except DrumbeatError as exc:
        return _print_error(exc)
    return 0


def _print_error(exc: DrumbeatError) -> int:
    print(f"drumbeat: {exc}", file=sys.stderr)
    return 1


async def _fire(firing: Firing, connector: "ForkConnector | None") -> None:
    async with open_control_plane(load_settings(os.environ)) as plane:
        plane.forks = connector
        print(json.dumps(await plane.fire(firing), default=str))


if __name__ == "__main__":
    sys.exit(main())
