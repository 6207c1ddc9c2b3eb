"""drumbeat pool work: run a worker of a pool of jobs."""

from typing import Annotated

import typer

from drumbeat.cli.options import JsonOption, StoreOption
from drumbeat.cli.run_worker import run_job_worker
from drumbeat.client import ExecutorKind

PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Pool name.")]
HandlerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--handler",
        metavar="[TYPE=]HANDLER",
        help="Handler of jobs: module:function, or 'command:PROGRAM ARGUMENT…' (payload on its standard input); with TYPE= "
        "only for jobs of that type. Repeatable.",
    ),
]
ExecutorOption = Annotated[
    ExecutorKind | None, typer.Option("--executor", help="Where handlers run: async, threads or processes.", show_default=False)
]
ConcurrencyOption = Annotated[
    int | None, typer.Option("--concurrency", min=1, help="Number of jobs to run at once. Default: 1", show_default=False)
]
CapabilityOption = Annotated[
    list[str] | None,
    typer.Option("--capability", help="Capability of the worker, for jobs that require it. Repeatable."),
]
LeaseOption = Annotated[
    str | None,
    typer.Option("--lease", help="Lease duration of a claimed job, unless renewed. Default: twice the heartbeat interval"),
]
TimeoutOption = Annotated[str | None, typer.Option("--timeout", help="Timeout of jobs that have none, such as 90s.")]
MaxJobsOption = Annotated[int | None, typer.Option("--max-jobs", min=1, help="Exit after this number of jobs, to be replaced.")]
MaxMemoryOption = Annotated[int | None, typer.Option("--max-memory", min=1, help="Exit when memory reaches this many MB.")]

MiddlewareOption = Annotated[
    list[str] | None,
    typer.Option(
        "--middleware",
        metavar="MODULE:OBJECT",
        help="Middleware: hooks around each attempt, run after the middleware of the settings. Repeatable.",
    ),
]
LogFormatOption = Annotated[
    str | None,
    typer.Option("--log-format", metavar="text|json", help="Format of log lines. Default: that of the settings, or text"),
]


def work(
    pool: Annotated[str, typer.Argument(metavar="POOL|MODULE", help="Pool name, or a module with tasks, such as app.tasks.")],
    handler: HandlerOption = None,
    once: Annotated[bool, typer.Option("--once", help="Run one job, then exit.")] = False,
    drain: Annotated[bool, typer.Option("--drain", help="Run jobs until the pool is empty, then exit.")] = False,
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
            help="How long running jobs may continue after a stop request, such as 30s; then they are stopped and requeued. "
            "Default: that of the pool, 10m",
        ),
    ] = None,
    middleware: MiddlewareOption = None,
    log_format: LogFormatOption = None,
    worker_id: Annotated[
        str | None,
        typer.Option(
            "--worker-id",
            help="Worker name; no other running worker of the pool may have it. Later starts get a number: w1, w1.2, w1.3. "
            "Default: a new name at each start",
        ),
    ] = None,
    tasks: Annotated[
        bool | None,
        typer.Option(
            "--tasks/--no-tasks",
            help="Whether the name is that of a module with tasks, or that of a pool. Default: whichever exists",
            show_default=False,
        ),
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="While developing: restart when a Python file in this folder changes.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a worker of a pool, or workers for all pools of the tasks in a module. Options that are not given come from the
    pool: see drumbeat pool create.

    On SIGTERM or Ctrl-C, running jobs have --grace to finish; jobs that take longer are requeued. A second signal requeues all
    jobs at once.
    Exit codes: 0 clean (with --once: a job was run, even if it failed), 1 configuration, 2 store lost, 4 fatal,
    6 with --once: no job to run.
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
        "middleware": middleware,
    }
    code = run_job_worker(
        pool,
        given,
        once=once,
        drain=drain,
        grace=grace,
        worker_id=worker_id,
        store=store,
        as_json=as_json,
        log_format=log_format,
        tasks=tasks,
        reload=reload,
    )
    raise typer.Exit(code)
