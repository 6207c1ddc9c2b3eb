"""Loads handlers (the functions or programs that run jobs) by name, and calls them with a job's payload."""

import inspect
import shlex
import shutil
import sys
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.pool.importing import import_object
from drumbeat.pool.payload import build, is_typed
from drumbeat.pool.worker.command import run_command
from drumbeat.pool.worker.context import JobContext
from drumbeat.pool.worker.options import check_spec
from drumbeat.pool.worker.task_call import TaskFunction

COMMAND = "command"  #: prefix of a handler that is a program: command:PROGRAM ARGUMENT…


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function or program that runs jobs, and the names of the parameters it takes."""

    name: str  #: as module:function or command:PROGRAM
    call: Callable[..., Any]
    is_async: bool
    payload_name: str | None = None  #: the parameter that takes the payload; None: it takes none
    payload_kind: Any = None  #: the type the payload is converted to; None: plain JSON
    context_name: str | None = None  #: the parameter that takes the JobContext
    portable: bool = True  #: whether another process can import it by its name
    is_command: bool = False  #: it is a program, which needs no thread or child process of the worker

    def invoke(self, context: JobContext) -> Any:
        """Call the handler. Returns its result, or a coroutine if it is async. Raises InvalidInput for an invalid payload."""
        given: dict[str, Any] = {}
        if self.payload_name is not None:
            given[self.payload_name] = build(self.payload_kind, context.payload)
        if self.context_name is not None:
            given[self.context_name] = context
        return self.call(**given)


Handlers = Mapping[str, Handler]


def handler_for(handlers: Handlers, job_type: str) -> Handler:
    """Return the handler for a job type, or else the default handler. Raises InvalidInput if there is neither."""
    found = handlers.get(job_type) or handlers.get("")
    if found is None:
        raise InvalidInput(f"no handler for type {job_type!r}; this worker has: {', '.join(handlers) or 'none'}")
    return found


def load_all(specs: Mapping[str, str]) -> dict[str, Handler]:
    """Load all handlers of a plan; returns them by job type. Raises InvalidInput if one cannot be loaded or there is none."""
    if not specs:
        raise InvalidInput(
            "expected a handler, got none; give --handler module:function to this command or to: drumbeat pool create"
        )
    return {kind: load(spec) for kind, spec in specs.items()}


def load_possible(specs: Mapping[str, str]) -> tuple[dict[str, Handler], dict[str, str]]:
    """Load handlers of a plan. Returns the loaded ones by job type, and for each type whose handler cannot be loaded the cause.

    Raises InvalidInput with the first cause if no handler can be loaded.
    """
    found, errors = dict[str, Handler](), dict[str, InvalidInput]()
    for kind, spec in specs.items():
        try:
            found[kind] = load(spec)
        except InvalidInput as exc:
            errors[kind] = exc
    if errors and not found:
        raise next(iter(errors.values()))
    return found or load_all(specs), {kind: str(error) for kind, error in errors.items()}


def check_importable(handlers: Handlers) -> None:
    """Raise InvalidInput if a child process cannot import one of the handlers by its name."""
    for handler in handlers.values():
        if not handler.portable:
            raise InvalidInput(
                f"handler {handler.name!r}: the executor 'processes' runs it in a child process, which cannot import it; give "
                f"a function of a module that can be imported (module:function), or use the executor 'threads'"
            )


def handlers_of(given: "Callable[..., Any] | str | Mapping[str, Callable[..., Any] | str]") -> dict[str, Handler]:
    """Return handlers by job type. ``given`` is a handler for all types, a task (it handles the type of its name), or a mapping
    from job types to handlers. Each handler is a function or its name (``module:function`` or ``command:PROGRAM``)."""
    if isinstance(given, TaskFunction):
        given = {given.task_name: given}
    by_type = given if isinstance(given, Mapping) else {"": given}
    return {kind: load(each) if isinstance(each, str) else describe(each) for kind, each in by_type.items()}


def load(spec: str) -> Handler:
    """Load a handler from ``module:function`` or ``command:PROGRAM ARGUMENT…``. Raises InvalidInput that says what is wrong."""
    where, _, what = check_spec(spec).partition(":")
    return _command(spec, what) if where == COMMAND else describe(import_object(spec, "handler", "a function"), spec)


def describe(function: Callable[..., Any], name: str | None = None) -> Handler:
    """Make a handler from a function: find its parameters for the payload and the JobContext. Raises InvalidInput."""
    if isinstance(function, TaskFunction):
        return _task(function, name)
    label = name or f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', repr(function))}"
    if not callable(function):
        raise InvalidInput(f"handler {label!r}: expected a function, got {type(function).__name__}")
    context_name, payload_name, kind = _parameters(function, label)
    return Handler(
        name=label,
        call=function,
        is_async=inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__),
        payload_name=payload_name,
        payload_kind=kind,
        context_name=context_name,
        portable=name is not None or _is_importable(function),
    )


def _task(task: TaskFunction, name: str | None) -> Handler:
    own = task.handler_name
    return Handler(
        name=name or own or task.task_name,
        call=task.run,
        is_async=task.is_async,
        context_name="context",
        portable=name is not None or own is not None,
    )


def _is_importable(function: Callable[..., Any]) -> bool:
    """Whether another process can import this function by module and name; False for a function in ``__main__``."""
    module, path = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    found: Any = sys.modules.get(module) if module and module != "__main__" else None
    for name in path.split(".") if path else ():
        found = getattr(found, name, None)
    return path is not None and found is function


def _parameters(function: Callable[..., Any], label: str) -> tuple[str | None, str | None, Any]:
    hints = _hints(function)
    context_name = payload_name = None
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise InvalidInput(f"handler {label!r}: expected parameters that accept keywords, got positional-only {name!r}")
        if hints.get(name) is JobContext or (name == "context" and name not in hints):
            context_name = name
        elif payload_name is None:
            payload_name = name
        elif parameter.default is parameter.empty:
            raise InvalidInput(f"handler {label!r}: expected at most a payload and a JobContext as parameters, got {name!r}")
    kind = hints.get(payload_name) if payload_name else None
    return context_name, payload_name, kind if is_typed(kind) else None


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(target)
    except (NameError, TypeError, AttributeError):
        return {}


def _command(spec: str, line: str) -> Handler:
    try:
        words = shlex.split(line)
    except ValueError as exc:
        raise InvalidInput(f"handler {spec!r}: its command cannot be split into words: {exc}; check the quotes") from exc
    if not words or shutil.which(words[0]) is None:
        raise InvalidInput(f"handler {spec!r}: expected a program, got {words[0] if words else ''!r}, which is not on the PATH")

    def call(context: JobContext) -> Awaitable[Any]:
        return run_command(words, context)

    return Handler(name=spec, call=call, is_async=True, context_name="context", is_command=True)
