"""drumbeat worker: run one worker of a pool or a benchmark run."""

from typing import Annotated

import typer

from drumbeat.cli.run_worker import run_spawned_worker


def worker(
    run_id: Annotated[str, typer.Option("--run-id", help="Run id or pool name.")],
    worker_id: Annotated[str, typer.Option("--worker-id", help="Worker name, unique in the pool.")],
    worker_group_id: Annotated[int, typer.Option("--worker-group-id", help="Slot of the worker, from 0.")],
    worker_group_count: Annotated[int, typer.Option("--worker-group-count", help="Number of slots.")],
) -> None:
    """Run one worker until it is told to stop. The store's URL comes from DRUMBEAT_STORE or drumbeat.toml, not from an option.

    Exit codes: 0 clean, 1 configuration, 2 store lost, 3 no start command in time, 4 fatal, 5 controller gone.
    """
    raise typer.Exit(run_spawned_worker(run_id, worker_id, worker_group_id, worker_group_count))
