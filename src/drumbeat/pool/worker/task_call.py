"""A task's function: writes the arguments of a call as a job's payload, and calls the function with a payload."""

import inspect
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.core.plain import short_repr
from drumbeat.pool.payload import MOST_BYTES, as_json
from drumbeat.pool.typed_values import Convert, converter
from drumbeat.pool.worker.context import JobContext

_MISFIT = "the arguments of this job do not fit: "
_MOST_SHAPES = 1000  #: most valid combinations of argument count and keyword names that are cached


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskParameters:
    """The parameters of a task, without the one that takes the JobContext, and what converts JSON to the type of each."""

    signature: inspect.Signature
    context_name: str | None = None  #: the parameter that takes the JobContext
    context_index: int | None = None  #: its position; None: it is passed by name
    by_index: tuple[Convert | None, ...] = ()
    by_name: Mapping[str, Convert]
    more_positional: Convert | None = None  #: for ``*args``
    more_named: Convert | None = None  #: for ``**kwargs``
    are_plain: bool = False  #: all arguments are passed as they are in JSON


class TaskFunction:
    """A function that is run as a job. The job's type is the task's name, its payload ``{"args": […], "kwargs": {…}}``."""

    def __init__(self, function: Callable[..., Any], name: str | None = None) -> None:
        if not inspect.isroutine(function):
            raise InvalidInput(f"expected a function as a task, got {short_repr(function)}; put @task above a def")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidInput(
                f"expected a function that returns its result as a task, got the generator {function.__qualname__}; "
                "return a list, or push a job for each item"
            )
        self.function = function
        self.module = _module_name(function)
        self.task_name = name or f"{self.module}.{function.__qualname__}"
        self.is_async = inspect.iscoroutinefunction(function)
        self._shapes: set[tuple[Any, ...]] = set()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the plain function."""
        return self.function(*args, **kwargs)

    @property
    def handler_name(self) -> str | None:
        """The handler as ``module:name``, for workers of other processes; None if they cannot import the task.

        The name is the function's, or the one that the task has in the module, as in ``send = task(_send)``.
        """
        path = self.function.__qualname__
        if "<" in path or self.module == "__main__":
            return None
        found: Any = sys.modules.get(self.module)
        for name in path.split("."):
            found = getattr(found, name, None)
        if found is self.function:
            names = vars(sys.modules[self.module])
            path = next((name for name, value in names.items() if value is self), "")
        return f"{self.module}:{path}" if path else None

    @cached_property
    def parameters(self) -> TaskParameters:
        """The task's parameters. They are read at first use, when all names in the annotations are defined."""
        return _read_parameters(self.function)

    @cached_property
    def result_converter(self) -> Convert | None:
        return converter("result", _hints(self.function).get("return"))

    def payload(self, args: Sequence[Any], kwargs: Mapping[str, Any], most_bytes: int = MOST_BYTES) -> Any:
        """Return the payload of a job that makes this call. Raises InvalidInput, which names the parameter with a bad value."""
        self._check_shape(args, kwargs, "")
        given = {"args": list(args), "kwargs": dict(kwargs)}
        try:
            payload = as_json(given, "arguments", most_bytes)
            _check_keys(given, "arguments")
            return payload
        except InvalidInput as exc:
            raise self._with_parameter(args, kwargs, most_bytes, exc) from exc

    def run(self, context: JobContext) -> Any:
        """Call the function with a job's payload. Returns its result, or a coroutine if it is async.

        Raises InvalidInput that names the parameter if the payload does not fit the parameters, such as after a change of
        the function.
        """
        args, kwargs = self._arguments(context.payload)
        self._check_shape(args, kwargs, _MISFIT)
        parameters = self.parameters
        if not parameters.are_plain:
            try:
                args, kwargs = _converted(parameters, args, kwargs)
            except InvalidInput as exc:
                raise self._misfit(f"{_MISFIT}{exc}") from exc
        if parameters.context_name is not None:
            args, kwargs = _with_context(parameters, args, kwargs, context)
        return self.function(*args, **kwargs)

    def _arguments(self, payload: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
        if isinstance(payload, dict) and payload.keys() <= {"args", "kwargs"}:
            args, kwargs = payload.get("args", []), payload.get("kwargs", {})
            if isinstance(args, list) and isinstance(kwargs, dict):
                return args, kwargs
        expected = '{"args": […], "kwargs": {…}}'
        raise InvalidInput(f"task {self.task_name}: expected the payload {expected}, got {short_repr(payload)}")

    def _check_shape(self, args: Sequence[Any], kwargs: Mapping[str, Any], problem: str) -> None:
        """Raise InvalidInput if this number of positional arguments, with these keyword names, does not fit the parameters."""
        shape = (len(args), *kwargs)
        if shape in self._shapes:
            return
        signature = self.parameters.signature
        try:
            signature.bind(*args, **kwargs)
        except TypeError as exc:
            raise self._misfit(f"{problem}{_unknown(signature, kwargs) or exc}") from exc
        if len(self._shapes) < _MOST_SHAPES:
            self._shapes.add(shape)

    def _misfit(self, problem: str) -> InvalidInput:
        """Return an error about arguments that do not fit the parameters."""
        signature = self.parameters.signature
        shown = signature.replace(return_annotation=signature.empty)
        return InvalidInput(f"task {self.task_name}: {problem}; expected {shown}")

    def _with_parameter(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], most_bytes: int, found: InvalidInput
    ) -> InvalidInput:
        """Return ``found`` (the error that a payload cannot be sent) with the name of the parameter that causes it."""
        for name, value in self.parameters.signature.bind(*args, **kwargs).arguments.items():
            try:
                as_json(value, name, most_bytes)
                _check_keys(value, name)
            except InvalidInput as exc:
                return InvalidInput(f"task {self.task_name}: {exc}")
        return InvalidInput(f"task {self.task_name}: {found}")


def _check_keys(value: Any, path: str) -> None:
    """Raise InvalidInput for a dict with a key that is neither text nor a number, or with keys that JSON makes the same."""
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                _check_number(key, value, path)
            if isinstance(each, dict | list | tuple):
                _check_keys(each, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for n, each in enumerate(value):
            if isinstance(each, dict | list | tuple):
                _check_keys(each, f"{path}[{n}]")


def _check_number(key: Any, value: Mapping[Any, Any], path: str) -> None:
    """Check a key of the dict ``value`` that is not text. Raises InvalidInput unless it is a number, and no other key is that
    number as text."""
    if key is None or isinstance(key, bool):
        raise InvalidInput(f"expected the keys of {path} to be text or numbers, got {key}")
    text = str(int(key)) if isinstance(key, int) else float.__repr__(key)
    if text in value:
        raise InvalidInput(
            f"expected the keys of {path} to differ as text, got {key!r} and {text!r}, which are one key in JSON"
        )


def _unknown(signature: inspect.Signature, kwargs: Mapping[str, Any]) -> str | None:
    """Return an error text for the first keyword argument that no parameter accepts; None if all are accepted."""
    own = signature.parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in own.values()):
        return None
    unknown = next((name for name in kwargs if name not in own), None)
    near = [] if unknown is None else get_close_matches(unknown, own, 1)
    hint = f", did you mean {near[0]!r}?" if near else ""
    return None if unknown is None else f"got an unexpected argument {unknown!r}{hint}"


def _module_name(function: Callable[..., Any]) -> str:
    """Return the name by which other processes import the function's module, also if here it runs as ``__main__``."""
    if function.__module__ != "__main__":
        return function.__module__
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:
        return str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    return Path(file).stem if file else "__main__"


def _read_parameters(function: Callable[..., Any]) -> TaskParameters:
    signature, hints = inspect.signature(function), _hints(function)
    context_name = context_index = None
    kept, by_index, by_name = list[inspect.Parameter](), list[Convert | None](), dict[str, Convert]()
    more: dict[Any, Convert | None] = {}
    for index, (name, parameter) in enumerate(signature.parameters.items()):
        hint = hints.get(name)
        if _takes_context(hint):
            context_name, context_index = name, None if parameter.kind is parameter.KEYWORD_ONLY else index
            continue
        kept.append(parameter)
        convert = converter(name, hint)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            more[parameter.kind] = convert
            continue
        if parameter.kind is not parameter.KEYWORD_ONLY:
            by_index.append(convert)
        if convert is not None:
            by_name[name] = convert
    return TaskParameters(
        signature=signature.replace(parameters=kept),
        context_name=context_name,
        context_index=context_index,
        by_index=tuple(by_index),
        by_name=by_name,
        more_positional=more.get(inspect.Parameter.VAR_POSITIONAL),
        more_named=more.get(inspect.Parameter.VAR_KEYWORD),
        are_plain=not by_name and not any(by_index) and not any(more.values()),
    )


def _takes_context(hint: Any) -> bool:
    return hint is JobContext or JobContext in typing.get_args(hint)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the function's annotations as types. Leaves out annotations that name something undefined."""
    try:
        return typing.get_type_hints(function)
    except Exception:
        return {name: found for name, hint in function.__annotations__.items() if (found := _hint(function, hint)) is not None}


def _hint(function: Callable[..., Any], hint: Any) -> Any:
    if not isinstance(hint, str):
        return hint
    holder = type("Holder", (), {"__annotations__": {"hint": hint}})
    try:
        return typing.get_type_hints(holder, getattr(function, "__globals__", {}))["hint"]
    except Exception:
        return JobContext if hint.rpartition(".")[2] == JobContext.__name__ else None


def _converted(
    parameters: TaskParameters, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    known = len(parameters.by_index)
    converts = [*parameters.by_index[: len(args)], *[parameters.more_positional] * max(len(args) - known, 0)]
    own = parameters.signature.parameters
    return (
        [value if convert is None else convert(value) for convert, value in zip(converts, args, strict=True)],
        {name: _named(parameters, name, name in own, value) for name, value in kwargs.items()},
    )


def _named(parameters: TaskParameters, name: str, own: bool, value: Any) -> Any:
    convert = parameters.by_name.get(name) if own else parameters.more_named
    return value if convert is None else convert(value)


def _with_context(
    parameters: TaskParameters, args: Sequence[Any], kwargs: Mapping[str, Any], context: JobContext
) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Add the JobContext at its position or, if the positional arguments do not reach that position, as a keyword argument."""
    index, name = parameters.context_index, parameters.context_name
    if index is not None and index <= len(args):
        return [*args[:index], context, *args[index:]], kwargs
    return args, {**kwargs, str(name): context}
