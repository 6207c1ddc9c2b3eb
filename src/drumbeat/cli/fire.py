"""The short way to one beat, for processes that a push starts: python -m drumbeat.cli.fire FIRING, which is JSON.

It has none of the command line's imports: from a push to the worker's start there is little else than these. Workers are forked
from a process of its own, which loads what they need while the beat looks and decides.
"""

import json
import logging
import os
import sys
from typing import TYPE_CHECKING

from drumbeat.cli.forked import become_command, worker_modules
from drumbeat.cli.session import run
from drumbeat.composition.plane import forking, logging_to_stderr, open_control_plane
from drumbeat.core.errors import DrumbeatError
from drumbeat.settings import load_settings
from drumbeat.triggers.model import Firing

if TYPE_CHECKING:
    from drumbeat.composition.plane import Door


def main() -> int:
    """Run the beat with a fork server of its own."""
    try:
        settings = load_settings(os.environ)
    except DrumbeatError as exc:
        return _complain(exc)
    with forking(become_command, worker_modules(settings.store)) as door:
        return fire(sys.argv[1], door)


def fire(firing: str, door: "Door | None" = None) -> int:
    """Run the beat, tell what it came to, as JSON; exit code 1 when it could not be run."""
    try:
        with logging_to_stderr(logging.WARNING):
            run(_fire(firing_of(firing), door))
    except DrumbeatError as exc:
        return _complain(exc)
    return 0


def _complain(exc: DrumbeatError) -> int:
    print(f"drumbeat: {exc}", file=sys.stderr)
    return 1


def firing_of(text: str) -> Firing:
    """What ``Firing.to_json`` wrote."""
    return Firing.from_json(json.loads(text))


async def _fire(firing: Firing, door: "Door | None") -> None:
    async with open_control_plane(load_settings(os.environ)) as plane:
        plane.forks = door
        print(json.dumps(await plane.fire(firing), default=str))


if __name__ == "__main__":
    sys.exit(main())
