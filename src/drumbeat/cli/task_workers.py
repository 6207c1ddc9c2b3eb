"""Runs workers for the tasks of a module: drumbeat pool work MODULE. Does not import Typer or Rich."""

import shlex
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from shlex import quote
from typing import Any

from drumbeat.cli.task_schedules import names_other_store, record_task_schedules
from drumbeat.client import Mode, WorkPlan, record_handlers, remove_task_handlers
from drumbeat.composition.plane import ControlPlane, WorkerSummary
from drumbeat.composition.pool_workers import PoolWork, PoolWorkers
from drumbeat.core.errors import InvalidInput, NotFound, StoreError
from drumbeat.core.job import JobStatus
from drumbeat.core.pool import PoolId, PoolKind, is_pool_name
from drumbeat.tasks.discover import defines_tasks, is_module, is_undefined, meant_module, tasks_in, tasks_of
from drumbeat.tasks.task import Task, task_handlers

WorkOnPool = Callable[
    [ControlPlane, str, Mapping[str, Any], str | None, timedelta | None], Awaitable[WorkerSummary]
]  #: runs a worker of one pool
_MOST_JOBS = 1000  #: most jobs that are counted when their handler is removed


def may_create_store(name: str, tasks: bool | None) -> bool:
    """Whether to create a missing store: for a module with tasks, whose worker may start before the first push."""
    return tasks is True or defines_tasks(name, Path()) or ("." in name and is_module(name))


def check_module(name: str, no_store: StoreError) -> None:
    """Raise NotFound or InvalidInput if no module with tasks has this name. Without a store, it cannot be the name of a pool.

    ``no_store``: the error that says where a store was looked for; part of the message of NotFound."""
    if not is_module(name):
        reason = str(no_store) if (meant := meant_module(name)) is None else _did_you_mean(meant)
        raise NotFound(f"no pool and no module {name!r} in {Path.cwd()} or among the installed ones; {reason}") from no_store
    tasks_of(name)


def _what_to_do(name: str) -> str:
    if (meant := meant_module(name)) is not None:
        return _did_you_mean(meant)
    module = "give a module with tasks, such as app.tasks"
    return (
        f"create the pool with: drumbeat pool create {quote(name)}, push to it, or {module}" if is_pool_name(name) else module
    )


def _did_you_mean(module: str) -> str:
    return f"did you mean: drumbeat pool work {module}"


async def work_on_pool_or_tasks(
    plane: ControlPlane,
    work_on_pool: WorkOnPool,
    name: str,
    changes: Mapping[str, Any],
    worker_id: str | None,
    grace: timedelta | None,
    tasks: bool | None,
) -> Sequence[WorkerSummary]:
    """Run a worker of the pool ``name``, or workers for the tasks of the module ``name``, whichever exists. If both exist,
    the module is chosen if all its tasks belong to that pool.

    Raises InvalidInput if both exist, some tasks belong to other pools, and ``tasks`` is not True; NotFound if neither exists.
    """
    is_pool = not tasks and await plane.store.pools.find(PoolId(name)) is not None
    if is_pool and not defines_tasks(name, Path()):
        return [await work_on_pool(plane, name, changes, worker_id, grace)]
    if not tasks and not is_pool and not is_module(name):
        raise NotFound(
            f"no pool {name!r}, and no module of that name in {Path.cwd()} or among the installed ones; {_what_to_do(name)}"
        )
    by_pool = _tasks_of_store(plane, name)
    if not tasks and (is_pool or name in by_pool) and set(by_pool) != {name}:
        raise InvalidInput(_ambiguous(name, by_pool, is_pool=is_pool))
    return await _work_on_tasks(plane, name, by_pool, changes, worker_id, grace)


def _tasks_of_store(plane: ControlPlane, module: str) -> Mapping[str, Sequence[Task[..., Any]]]:
    """Return the tasks of a module by pool, without those that name another store than this one. Prints which these are.

    Raises InvalidInput if all tasks name another store."""
    found = tasks_of(module, lambda task: not names_other_store(task, plane.settings.store))
    elsewhere = [each for each in tasks_in(module) if names_other_store(each, plane.settings.store)]
    if not found:
        names = ", ".join(sorted({each.task_name for each in elsewhere}))
        raise InvalidInput(f"every task of module {module!r} names another store: {names}; start the worker with --store URL")
    own = {(each.pool, each.task_name) for tasks in found.values() for each in tasks}
    for each in elsewhere:
        if (each.pool, each.task_name) not in own and each.timing is None:  # of the others, record_task_schedules tells
            print(f"task {each.task_name} has another store, so it is not run here; start a worker there too", file=sys.stderr)
    return found


def _ambiguous(name: str, pools: Collection[str], *, is_pool: bool) -> str:
    """Return the error message for a name that a module and a pool share. The pool is in the store (``is_pool``), or is a pool
    of the module's tasks that the first start would create."""
    others = ", ".join(pool for pool in pools if pool != name)
    pool = "a pool of this store" if is_pool else "a pool of one of its tasks"
    return (
        f"{name!r} is a module with tasks of pool {others}, and {pool}; add --tasks to run all tasks of the module, or "
        f"--no-tasks to work on the pool"
    )


async def _work_on_tasks(
    plane: ControlPlane,
    module: str,
    by_pool: Mapping[str, Sequence[Task[..., Any]]],
    changes: Mapping[str, Any],
    worker_id: str | None,
    grace: timedelta | None,
) -> Sequence[WorkerSummary]:
    works = [await _pool_work(plane, pool, tasks, changes) for pool, tasks in by_pool.items()]
    await record_task_schedules(plane, module, [task for tasks in tasks_of(module).values() for task in tasks])
    await _remove_undefined(plane, module)
    for work in works:
        print(f"working on pool {work.pool}: {', '.join(work.handlers)}", file=sys.stderr)
    return await PoolWorkers(plane, worker_id, grace).run(works)


async def _pool_work(plane: ControlPlane, name: str, tasks: Sequence[Task[..., Any]], changes: Mapping[str, Any]) -> PoolWork:
    pool = plane.pool(name)
    specs = {task.task_name: task.handler_name for task in tasks if task.handler_name is not None}
    await record_handlers(plane.store, pool, specs)
    plan: WorkPlan = replace(await pool.plan(), **{**changes, "mode": Mode(changes["mode"])})
    return PoolWork(pool=name, plan=plan, handlers=task_handlers(tasks))


async def _remove_undefined(plane: ControlPlane, module: str) -> None:
    """Remove from all pools the handlers of tasks that the module no longer has. Prints what was removed."""
    tasks = tasks_in(module)
    for row in await plane.store.pools.list(PoolKind.JOBS):
        pool = plane.pool(row.pool_id)
        gone = await remove_task_handlers(pool, lambda handler: is_undefined(handler, module, tasks))
        for kind in gone:
            print(_removed(kind, row.pool_id, module, await _count_open(plane, row.pool_id, kind)), file=sys.stderr)


async def _count_open(plane: ControlPlane, pool_id: PoolId, kind: str) -> int:
    """Count the jobs of a type that have not ended, up to _MOST_JOBS."""
    statuses = [JobStatus.PENDING, JobStatus.WAITING, JobStatus.CLAIMED]
    return len(await plane.store.jobs.list(pool_id, statuses=statuses, job_type=kind, limit=_MOST_JOBS))


def _removed(kind: str, pool_id: PoolId, module: str, jobs: int) -> str:
    removed = f"removed the handler of type {kind} from pool {pool_id}: module {module} no longer has this task"
    if not jobs:
        return removed
    count = "1 job" if jobs == 1 else f"{jobs}{' or more' if jobs == _MOST_JOBS else ''} jobs"
    has, them = ("has", "it") if jobs == 1 else ("have", "them")
    cancel = f"drumbeat pool cancel {shlex.quote(pool_id)} --type {shlex.quote(kind)}"
    return (
        f"{removed}; {count} of type {kind} {has} no function any more: if the task was renamed, give it its old name, "
        f"@task(name={kind!r}), or cancel {them} with: {cancel}"
    )
