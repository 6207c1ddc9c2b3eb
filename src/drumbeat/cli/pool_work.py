"""drumbeat pool work: be a worker of a pool of jobs, for one job, until it is empty, or until told to stop."""

from typing import Annotated

import typer

from drumbeat.cli.options import JsonOption, StoreOption
from drumbeat.cli.run_worker import be_job_worker
from drumbeat.client import ExecutorKind

PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="A pool of jobs.")]
HandlerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--handler",
        metavar="[TYPE=]HANDLER",
        help="module:function, or 'command:PROGRAM ARGUMENT…' (payload on its standard input); with TYPE= only for jobs of "
        "that type. May be given more than once.",
    ),
]
ExecutorOption = Annotated[
    ExecutorKind | None, typer.Option("--executor", help="Where handlers run: async, threads or processes.", show_default=False)
]
ConcurrencyOption = Annotated[
    int | None, typer.Option("--concurrency", min=1, help="How many jobs at once. At first: 1", show_default=False)
]
CapabilityOption = Annotated[
    list[str] | None,
    typer.Option("--capability", help="What this worker can do beside plain jobs. May be given more than once."),
]
LeaseOption = Annotated[
    str | None, typer.Option("--lease", help="How long a claim lasts unless renewed. Else twice the pool's heartbeat.")
]
TimeoutOption = Annotated[
    str | None, typer.Option("--timeout", help="How long a job may take that names no time, such as 90s.")
]
MaxJobsOption = Annotated[int | None, typer.Option("--max-jobs", min=1, help="Leave after so many jobs, to be replaced.")]
MaxMemoryOption = Annotated[int | None, typer.Option("--max-memory", min=1, help="Leave once it has grown to so many MB.")]


def work(
    pool: PoolArgument,
    handler: HandlerOption = None,
    once: Annotated[bool, typer.Option("--once", help="Claim one job, work on it, leave.")] = False,
    drain: Annotated[bool, typer.Option("--drain", help="Work until nothing is left to claim, then leave.")] = False,
    concurrency: ConcurrencyOption = None,
    executor: ExecutorOption = None,
    capability: CapabilityOption = None,
    lease: LeaseOption = None,
    timeout: TimeoutOption = None,
    max_jobs: MaxJobsOption = None,
    max_memory: MaxMemoryOption = None,
    grace: Annotated[
        str | None,
        typer.Option(
            "--grace",
            help="How long running jobs may go on when it is told to stop, such as 30s; then they are stopped and given back. "
            "Else as the pool says: 10m",
        ),
    ] = None,
    worker_id: Annotated[str | None, typer.Option("--worker-id", help="This worker's name, unique in the store.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Be a worker of a pool. What is not given is as the pool keeps it: see drumbeat pool create.

    SIGTERM or Ctrl-C finishes what runs, for --grace at the most, and gives back what does not; a second one gives back
    everything at once.
    Exit codes: 0 clean (with --once: a job was worked on, whatever came of it), 1 configuration, 2 store lost, 4 fatal,
    6 with --once: nothing to do.
    """
    given = {
        "handlers": handler,
        "executor": executor,
        "concurrency": concurrency,
        "capabilities": capability,
        "lease": lease,
        "timeout": timeout,
        "max_jobs": max_jobs,
        "max_memory_mb": max_memory,
    }
    code = be_job_worker(pool, given, once=once, drain=drain, grace=grace, worker_id=worker_id, store=store, as_json=as_json)
    raise typer.Exit(code)
