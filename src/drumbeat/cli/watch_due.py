"""Starts workers when delayed jobs of a pool become ready: python -m drumbeat.cli.watch_due POOL [FIRING], where FIRING
describes, as JSON, the beat (pass of the pool's control loop) that starts them."""

import asyncio
import json
import logging
import os
import sys

from drumbeat.cli.session import run
from drumbeat.composition.plane import logging_to_stderr, on_stop_signals, open_control_plane
from drumbeat.core.errors import DrumbeatError
from drumbeat.core.pool import PoolId
from drumbeat.settings import load_settings
from drumbeat.triggers.model import Firing


def main() -> int:
    try:
        with logging_to_stderr(logging.WARNING):
            run(_watch(PoolId(sys.argv[1]), Firing.from_json(json.loads(sys.argv[2])) if sys.argv[2:] else None))
    except DrumbeatError as exc:
        print(f"drumbeat: {exc}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        return 0
    return 0


async def _watch(pool_id: PoolId, firing: Firing | None) -> None:
    task = asyncio.current_task()
    assert task is not None
    with on_stop_signals(task.cancel):
        async with open_control_plane(load_settings(os.environ)) as plane:
            await plane.watch_pool(pool_id, firing)


if __name__ == "__main__":
    sys.exit(main())
