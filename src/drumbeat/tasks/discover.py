"""Finds the tasks of a module, for a worker that is started with the module's name."""

import ast
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.tasks.task import CallableTask, Task

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def tasks_of(
    module: str, is_chosen: Callable[[Task[..., Any]], bool] = lambda task: True
) -> Mapping[str, Sequence[Task[..., Any]]]:
    """Import a module and return its tasks by pool, with the tasks that it imports from other modules.

    Tasks for which ``is_chosen`` returns False are left out. Raises InvalidInput if the module cannot be imported, has no task,
    or has two tasks with the same name.
    """
    found: dict[str, Task[..., Any]] = {}
    by_pool: dict[str, dict[str, Task[..., Any]]] = {}
    _import(module)
    for each in tasks_in(module):
        other = found.setdefault(each.task_name, each)
        if other.function is not each.function:
            raise InvalidInput(
                f"module {module!r} has two tasks with the name {each.task_name!r}: {other.handler_name} and "
                f"{each.handler_name}; give one of them another name: @task(name=…)"
            )
        if is_chosen(each):
            by_pool.setdefault(each.pool, {}).setdefault(each.task_name, each)
    if not found:
        raise InvalidInput(f"expected a module with tasks, got {module!r}, which has none; put @drumbeat.task above a function")
    return {pool: [*tasks.values()] for pool, tasks in by_pool.items()}


def defining_module(task: Task[..., Any], module: str) -> str:
    """Return the module that defines a task of the imported ``module`` at its top level: the module of the task's function or,
    if that module has no task of this name, ``module`` itself, which has made a task of another module's function."""
    return task.module if any(each.task_name == task.task_name for each in tasks_in(task.module)) else module


def periodic_tasks(module: str) -> dict[tuple[str, str], Task[..., Any]]:
    """Return the periodic tasks at the top level of an imported module, by pool and name; empty if it was not imported.

    A copy of a task made by ``with_options`` is left out if the module has the task itself, which would run twice otherwise.
    """
    tasks = [task for task in tasks_in(module) if task.timing is not None]
    decorated = {task.task_name for task in tasks if isinstance(task, CallableTask)}
    return {
        (task.pool, task.task_name): task for task in tasks if isinstance(task, CallableTask) or task.task_name not in decorated
    }


def file_of(module: str) -> str | None:
    """Return the file of an imported module; None if it was not imported, or has no file."""
    return getattr(sys.modules.get(module), "__file__", None)


def tasks_in(module: str) -> list[Task[..., Any]]:
    """Return the tasks at the top level of an imported module; empty if it was not imported."""
    found = sys.modules.get(module)
    return [] if found is None else [each for each in vars(found).values() if isinstance(each, Task)]


def is_undefined(handler: str, module: str, tasks: Iterable[Task[..., Any]]) -> bool:
    """Whether a handler (``module:function``) names a task that this imported module no longer has. ``tasks``: the tasks found
    at the top level of the module; a task in one of the module's classes counts as defined too."""
    where, _, path = handler.partition(":")
    if where != module or handler in {task.handler_name for task in tasks}:
        return False
    found: Any = sys.modules[module]
    for name in path.split("."):
        found = getattr(found, name, None)
    return not isinstance(found, Task)


def meant_module(text: str) -> str | None:
    """Return the name of the module that a file (app/tasks.py) or a task (app.tasks:add) belongs to; None if there is none."""
    path = Path(text.partition(":")[0])
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    parts = path.with_suffix("").parts if path.suffix == ".py" else path.parts
    name = ".".join(parts[:-1] if parts[-1:] == ("__init__",) else parts)
    return name if name != text and is_module(name) else None


def _import(module: str) -> None:
    if not _MODULE.fullmatch(module):
        meant = meant_module(module)
        raise InvalidInput(f"expected the name of a module, such as {meant or 'app.tasks'}, got {module!r}")
    try:
        importlib.import_module(module)
    except (Exception, SystemExit) as exc:
        raise InvalidInput(f"cannot import module {module!r}: {type(exc).__name__}: {exc}{_place(exc)}") from exc


def _place(error: BaseException) -> str:
    """Return the file and line where an import failed; empty if no code ran, or for a SyntaxError, whose text names them."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_machinery(frame.filename)]
    if isinstance(error, SyntaxError) or not frames:
        return ""
    return f" ({frames[-1].filename}, line {frames[-1].lineno})"


def _is_machinery(file: str) -> bool:
    return file.startswith("<") or file in (__file__, importlib.__file__)


def is_module(name: str) -> bool:
    """Whether a module with this name can be found. For ``a.b`` this imports ``a``; if ``a`` exists but fails, returns True."""
    if not _MODULE.fullmatch(name):
        return False
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as exc:
        return not f"{name}.".startswith(f"{exc.name}.")
    except (Exception, SystemExit):
        return True


def defines_tasks(name: str, folder: Path) -> bool:
    """Whether a folder has a module with this name in which a function is decorated as a task. Nothing is imported."""
    if not _MODULE.fullmatch(name):
        return False
    path = folder.joinpath(*name.split("."))
    file = next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)
    if file is None:
        return False
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return False
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(_is_task(decorator) for function in functions for decorator in function.decorator_list)


def _is_task(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) == "task"
