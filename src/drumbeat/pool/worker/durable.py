"""Durable steps in the code of a handler or task: ``step``, ``sleep`` and ``wait_for``."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar, overload

from drumbeat.core.errors import InvalidInput
from drumbeat.pool.worker.context import JobContext
from drumbeat.pool.worker.log_context import CURRENT_JOB

P = ParamSpec("P")
R = TypeVar("R")


@overload
async def step(function: Callable[..., Coroutine[Any, Any, R]], /, *args: Any, step_name: str, **kwargs: Any) -> R: ...


@overload
async def step(function: Callable[..., R], /, *args: Any, step_name: str, **kwargs: Any) -> R: ...


@overload
async def step(function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...


@overload
async def step(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...


async def step(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Run a function as a durable step of the current job, and record its result in the store. If the job is run again, such
    as after a crash, this returns the recorded result and does not call the function again.

    A plain function runs in a thread. Steps are recognised by their order, so a job must always run the same steps in the same
    order; ``step_name`` is by default the function's name. The result must be JSON, of at most a megabyte.

    Raises StepFailed if the function raises; InvalidInput outside of a job, or if an earlier attempt of the job ran another
    step at this position.
    """
    return await _current().step(function, *args, **kwargs)


async def sleep(duration: timedelta | float) -> None:
    """Sleep for a timedelta or seconds. If longer than a second, the job leaves its worker and is claimed again afterwards, so
    that it takes up no worker while it sleeps, and sleeps on if the worker dies."""
    await _current().sleep(duration)


async def wait_for(name: str, timeout: timedelta | float | None = None) -> Any:  # noqa: ASYNC109
    """Wait for an event that another process sends to the current job by ``pool.send_event(job_id, name, value)``, and return
    its value. While the job waits, it takes up no worker. If the event was sent before, returns at once.

    Raises TimeoutError if the event is not sent within ``timeout`` (a timedelta or seconds).
    """
    return await _current().wait_for(name, timeout)


def _current() -> JobContext:
    context = CURRENT_JOB.get()
    if context is None:
        raise InvalidInput(
            "expected a call in a job, got one outside; step, sleep and wait_for work in a handler or task that a worker runs"
        )
    return context
