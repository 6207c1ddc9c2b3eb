"""Runs a worker in this process. Does not import Typer or Rich, so that workers start fast."""

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from drumbeat.cli.session import parse_age, run, with_control_plane
from drumbeat.composition.plane import (
    ControlPlane,
    WorkerArguments,
    WorkerSummary,
    logging_to_stderr,
    open_control_plane,
    stderr_handler,
)
from drumbeat.core.errors import InvalidInput, StoreError
from drumbeat.core.pool_settings import check_log_format
from drumbeat.core.worker import ExitCode
from drumbeat.settings import load_settings

NOTHING_TO_DO = 6  #: exit code of ``pool work --once`` when there was no job to claim


def run_spawned_worker(run_id: str, worker_id: str, worker_group_id: int, worker_group_count: int) -> int:
    """Run a worker that a controller spawned. Returns its exit code."""
    arguments = WorkerArguments(
        run_id=run_id, worker_id=worker_id, worker_group_id=worker_group_id, worker_group_count=worker_group_count
    )
    with logging_to_stderr(logging.INFO, _log_handler(None)):
        return int(run(_run_worker(arguments)))


async def _run_worker(arguments: WorkerArguments) -> ExitCode:
    async with open_control_plane(load_settings(os.environ)) as plane:
        return await plane.run_worker(arguments)


def run_job_worker(
    pool: str,
    given: Mapping[str, Any],
    *,
    once: bool = False,
    drain: bool = False,
    grace: str | None = None,
    worker_id: str | None = None,
    store: str | None = None,
    as_json: bool = False,
    log_format: str | None = None,
    tasks: bool | None = None,
    reload: bool = False,
) -> int:
    """Run a worker that a user started with ``drumbeat pool work``. ``given``: the command's options. Returns its exit code.

    ``tasks``: whether ``pool`` is the name of a module with tasks (True) or of a pool (False); None: whichever exists."""
    if once and drain:
        raise InvalidInput("expected --once or --drain, got both")
    if reload:
        from drumbeat.cli.reload import run_and_reload

        return run_and_reload(sys.argv[1:])
    changes = {"mode": "once" if once else "drain" if drain else "loop", **plan_changes(given)}
    tasks = False if given.get("handlers") else tasks
    done: Sequence[WorkerSummary]
    with logging_to_stderr(logging.WARNING, _log_handler(log_format)):
        within = None if grace is None else parse_age(grace, "--grace")
        if tasks is False:
            done = [with_control_plane(store, lambda plane: _work(plane, pool, changes, worker_id, within))]
        else:
            done = _work_on_pool_or_tasks(store, pool, changes, worker_id, within, tasks)
    _print_summary(done, as_json=as_json)
    code = next((each.code for each in done if each.code is not ExitCode.CLEAN), ExitCode.CLEAN)
    return NOTHING_TO_DO if once and code is ExitCode.CLEAN and not any(each.ended for each in done) else int(code)


def _work_on_pool_or_tasks(store: str | None, name: str, *arguments: Any) -> Sequence[WorkerSummary]:
    from drumbeat.cli.task_workers import check_module, may_create_store, work_on_pool_or_tasks

    create = may_create_store(name, arguments[-1])
    try:
        return with_control_plane(store, lambda plane: work_on_pool_or_tasks(plane, _work, name, *arguments), create=create)
    except StoreError as exc:
        if create or not exc.is_missing:
            raise
        check_module(name, exc)
    return with_control_plane(store, lambda plane: work_on_pool_or_tasks(plane, _work, name, *arguments), create=True)


def _log_handler(log_format: str | None) -> logging.Handler:
    """Return a handler that writes text or JSON to standard error; None: as the settings say. Raises InvalidSettings."""
    from drumbeat.client import JobLogFilter

    chosen = load_settings(os.environ).pool.log_format if log_format is None else check_log_format(log_format, "--log-format")
    return stderr_handler(as_json=chosen == "json", only=JobLogFilter())


def plan_changes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a command's options to fields of WorkPlan, which says how a worker runs jobs. Raises InvalidInput."""
    from drumbeat.client import ExecutorKind, Mode, parse_handlers

    readers: Mapping[str, Any] = {
        "handlers": parse_handlers,
        "executor": ExecutorKind,
        "mode": Mode,
        "capabilities": tuple,
        "middleware": tuple,
        "lease": partial(parse_age, option="--lease"),
        "timeout": partial(parse_age, option="--timeout"),
    }
    return {name: readers[name](value) if name in readers else value for name, value in given.items() if value}


async def _work(
    plane: ControlPlane, pool: str, changes: Mapping[str, Any], worker_id: str | None, grace: timedelta | None
) -> WorkerSummary:
    from drumbeat.client import Mode

    plan = replace(await plane.pool(pool).plan(), **{**changes, "mode": Mode(changes["mode"])})
    return await plane.work(pool, plan, worker_id, grace=grace)


def _print_summary(done: Sequence[WorkerSummary], *, as_json: bool) -> None:
    if as_json:
        from drumbeat.cli.render import show_json

        for each in done:
            counts = {"ended": each.ended, "finished": each.finished, "failed": each.failed, "suspended": each.suspended}
            show_json({"worker_id": each.worker_id, **counts, "exit_code": each.code})
    elif all(each.code is ExitCode.CLEAN for each in done):
        print(_summary(done), file=sys.stderr)


def _summary(done: Sequence[WorkerSummary]) -> str:
    counts = ((each.ended, each.finished, each.failed, each.suspended) for each in done)
    ended, finished, failed, suspended = (sum(column) for column in zip(*counts, strict=True))
    others = ended - finished - failed - suspended
    more = f", {suspended} suspended" if suspended else ""
    more += f", {others} cancelled, requeued or taken over by another worker" if others else ""
    attempts = "1 attempt" if ended == 1 else f"{ended} attempts"
    jobs = "1 job is done" if finished == 1 else f"{finished} jobs are done"
    return f"{attempts} ended: {jobs}, {failed} failed{more}"
