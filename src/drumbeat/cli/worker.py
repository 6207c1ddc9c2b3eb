"""drumbeat worker: be one worker of a pool or run, from joining to leaving."""

import logging
import os
import sys
from typing import Annotated

import typer

from drumbeat.cli.options import run
from drumbeat.control_plane import WorkerArguments, open_control_plane
from drumbeat.core.worker import ExitCode
from drumbeat.settings import load_settings


def worker(
    run_id: Annotated[str, typer.Option("--run-id", help="The run, or pool, to work for.")],
    worker_id: Annotated[str, typer.Option("--worker-id", help="This worker's name, unique in its pool.")],
    worker_group_id: Annotated[int, typer.Option("--worker-group-id", help="Its zero-based slot.")],
    worker_group_count: Annotated[int, typer.Option("--worker-group-count", help="How many slots there are.")],
) -> None:
    """Be one worker, from joining to leaving. The store comes from DRUMBEAT_STORE, never from the command line.

    Exit codes: 0 clean, 1 configuration, 2 store lost, 3 no START in time, 4 fatal, 5 controller gone.
    """
    arguments = WorkerArguments(
        run_id=run_id, worker_id=worker_id, worker_group_id=worker_group_id, worker_group_count=worker_group_count
    )
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    raise typer.Exit(run(_live(arguments)))


async def _live(arguments: WorkerArguments) -> ExitCode:
    async with open_control_plane(load_settings(os.environ)) as plane:
        return await plane.run_worker(arguments)
