"""Runs workers for the tasks of a module: drumbeat pool work MODULE. Does not import Typer or Rich."""

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from drumbeat.client import Mode, WorkPlan, record_handlers
from drumbeat.composition.base import process_name
from drumbeat.composition.plane import ControlPlane, WorkerSummary
from drumbeat.composition.pool_workers import PoolWork, PoolWorkers
from drumbeat.core.errors import InvalidInput, NotFound
from drumbeat.core.pool import PoolId, PoolKind
from drumbeat.tasks.discover import defines_tasks, is_module, tasks_of
from drumbeat.tasks.periodic import record_schedules
from drumbeat.tasks.task import Task, task_handlers

WorkOnPool = Callable[
    [ControlPlane, str, Mapping[str, Any], str | None, timedelta | None], Awaitable[WorkerSummary]
]  #: runs a worker of one pool


def may_create_store(name: str, tasks: bool | None) -> bool:
    """Whether to create a missing store: for a module with tasks, whose worker may start before the first push."""
    return tasks is True or defines_tasks(name, Path()) or ("." in name and is_module(name))


async def work_on_pool_or_tasks(
    plane: ControlPlane,
    work_on_pool: WorkOnPool,
    name: str,
    changes: Mapping[str, Any],
    worker_id: str | None,
    grace: timedelta | None,
    tasks: bool | None,
) -> Sequence[WorkerSummary]:
    """Run a worker of the pool ``name``, or workers for the tasks of the module ``name``, whichever exists.

    Raises InvalidInput if both exist and ``tasks`` does not say which is meant; NotFound if neither exists.
    """
    if not tasks and await plane.store.pools.find(PoolId(name)) is not None:
        if defines_tasks(name, Path()):
            raise InvalidInput(
                f"{name!r} is a pool of this store and a module with tasks in this folder; add --tasks to run the module's "
                f"tasks, or --no-tasks to work on the pool"
            )
        return [await work_on_pool(plane, name, changes, worker_id, grace)]
    if not tasks and not is_module(name):
        raise NotFound(
            f"no pool {name!r}, and no module of that name in {Path.cwd()} or among the installed ones; create the pool with: "
            f"drumbeat pool create {name}, push to it, or give a module with tasks, such as app.tasks"
        )
    return await _work_on_tasks(plane, name, changes, worker_id, grace)


async def _work_on_tasks(
    plane: ControlPlane, module: str, changes: Mapping[str, Any], worker_id: str | None, grace: timedelta | None
) -> Sequence[WorkerSummary]:
    by_pool = tasks_of(module)
    works = [await _pool_work(plane, pool, tasks, changes) for pool, tasks in by_pool.items()]
    await _record_schedules(plane, module, by_pool)
    for work in works:
        print(f"working on pool {work.pool}: {', '.join(work.handlers)}", file=sys.stderr)
    return await PoolWorkers(plane, worker_id, grace).run(works)


async def _pool_work(plane: ControlPlane, name: str, tasks: Sequence[Task[..., Any]], changes: Mapping[str, Any]) -> PoolWork:
    pool = plane.pool(name)
    specs = {task.task_name: task.handler_name for task in tasks if task.handler_name is not None}
    await record_handlers(plane.store, plane.clock, pool, specs, process_name())
    plan: WorkPlan = replace(await pool.plan(), **{**changes, "mode": Mode(changes["mode"])})
    return PoolWork(pool=name, plan=plan, handlers=task_handlers(tasks))


async def _record_schedules(plane: ControlPlane, module: str, by_pool: Mapping[str, Sequence[Task[..., Any]]]) -> None:
    """Record the schedules of the module's periodic tasks, and remove from all pools those that it no longer defines."""
    for pool in await plane.store.pools.list(PoolKind.JOBS):
        await record_schedules(plane.pool(pool.pool_id).schedules, by_pool.get(pool.pool_id, ()), module)
