"""Records the schedules of a module's tasks when its worker starts, and removes those that are no longer defined. Does not
import Typer or Rich."""

import os
import shlex
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from drumbeat.client import JobSchedule
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import InvalidSettings
from drumbeat.core.pool import PoolId, PoolKind
from drumbeat.settings import load_settings, store_name
from drumbeat.tasks.discover import defining_module, file_of, periodic_tasks
from drumbeat.tasks.periodic import record_schedules
from drumbeat.tasks.task import Task


async def record_task_schedules(plane: ControlPlane, module: str, tasks: Collection[Task[..., Any]]) -> None:
    """Record the schedules of the periodic tasks of the imported ``module``. Then remove from all pools the schedules that it,
    or a module that it imports, defined earlier but no longer defines. Prints what it removes, and what it leaves out."""
    store = _WorkerStore(plane.settings.store, tasks)
    for task in tasks:
        owner = defining_module(task, module)
        if (task.pool, task.task_name) not in periodic_tasks(owner):
            continue
        if store.has(task):
            await record_schedules(plane.pool(task.pool).schedules, [task], owner, file_of(owner))
        else:
            _print(f"task {task.task_name} has another store, so its schedule is not recorded here; start a worker on it too")
    for pool in await plane.store.pools.list(PoolKind.JOBS):
        await _remove_undefined(plane, pool.pool_id, module, store)


def names_other_store(task: Task[..., Any], url: str) -> bool:
    """Whether a task names a store, and not that of this URL."""
    return task.store is not None and not _is_store_of(task, store_name(url))


def _is_store_of(task: Task[..., Any], name: str) -> bool:
    """Whether a task names the store with this name, as ``store_name`` returns it."""
    try:
        return task.store is not None and store_name(task.store) == name
    except (ValueError, InvalidSettings):  # the URL is not valid, as the first push says
        return False


class _WorkerStore:
    """Says which tasks of a module belong to the store of their worker."""

    def __init__(self, url: str, tasks: Iterable[Task[..., Any]]) -> None:
        self._name = store_name(url)
        is_named = any(_is_store_of(task, self._name) for task in tasks)
        self._is_default = not is_named or self._name == store_name(load_settings(os.environ).store)

    def has(self, task: Task[..., Any]) -> bool:
        """Whether a task belongs to the worker's store. A task that names no store belongs to it if it is the store of the
        settings, or if no other task of the module names it."""
        return self._is_default if task.store is None else _is_store_of(task, self._name)


async def _remove_undefined(plane: ControlPlane, pool_id: PoolId, module: str, store: _WorkerStore) -> None:
    """Remove the schedules of a pool that modules imported by this process no longer define. A schedule that a module of the
    same name in another file defined stays: it may belong to another application."""
    unsure: dict[str, JobSchedule] = {}

    def is_undefined(schedule: JobSchedule) -> bool:
        owner = schedule.module or ""
        task = periodic_tasks(owner).get((pool_id, schedule.name))
        if task is not None and (task.store is None or store.has(task)):
            return False
        if schedule.file is None or schedule.file != file_of(owner):
            if file_of(owner) is not None:
                unsure[schedule.name] = schedule
            return _is_deleted(schedule, module)
        return True

    schedules = plane.pool(pool_id).schedules
    for name in await schedules.remove_undefined(is_undefined):
        _print(f"removed the schedule {name} from pool {pool_id}: its module no longer defines it")
    for name, schedule in unsure.items():
        _print(_left(pool_id, name, schedule))


def _is_deleted(schedule: JobSchedule, module: str) -> bool:
    """Whether the file that defined a schedule was deleted from the package of the worker's ``module``."""
    package, dot, _ = module.partition(".")
    folder = Path(file_of(package) or "").parent
    if not dot or schedule.file is None or not (schedule.module or "").startswith(f"{package}."):
        return False
    return Path(schedule.file).is_relative_to(folder) and not Path(schedule.file).exists()


def _left(pool_id: PoolId, name: str, schedule: JobSchedule) -> str:
    where = f" in {schedule.file}" if schedule.file else ""
    command = f"drumbeat pool schedule rm {shlex.quote(pool_id)} {shlex.quote(name)}"
    return (
        f"pool {pool_id} has the schedule {name} of module {schedule.module}{where}, which is not in "
        f"{file_of(schedule.module or '')}; if no other application has it, remove it with: {command}"
    )


def _print(line: str) -> None:
    print(line, file=sys.stderr)
