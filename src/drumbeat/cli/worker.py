"""drumbeat worker: be one worker of a pool or run, from joining to leaving."""

from typing import Annotated

import typer

from drumbeat.cli.run_worker import be_worker


def worker(
    run_id: Annotated[str, typer.Option("--run-id", help="The run, or pool, to work for.")],
    worker_id: Annotated[str, typer.Option("--worker-id", help="This worker's name, unique in its pool.")],
    worker_group_id: Annotated[int, typer.Option("--worker-group-id", help="Its zero-based slot.")],
    worker_group_count: Annotated[int, typer.Option("--worker-group-count", help="How many slots there are.")],
) -> None:
    """Be one worker, from joining to leaving. The store comes from DRUMBEAT_STORE, never from the command line.

    Exit codes: 0 clean, 1 configuration, 2 store lost, 3 no START in time, 4 fatal, 5 controller gone.
    """
    raise typer.Exit(be_worker(run_id, worker_id, worker_group_id, worker_group_count))
