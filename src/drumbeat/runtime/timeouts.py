"""Functions that wait with a limit: for a result, for an event, or for the first of two tasks."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError, StoreUnavailable, first_error

T = TypeVar("T")

_CUT = "...(truncated)"


class LostRace(Exception):
    """Raised by ``race`` if its ``rival`` finished before its ``work``. Always caught inside this package."""


async def race(rival: Coroutine[Any, Any, object], work: Coroutine[Any, Any, T]) -> T:
    """Run two coroutines at once. Returns the result of ``work``, or cancels it and raises LostRace if ``rival`` ends first."""
    async with asyncio.TaskGroup() as group:
        work_task = group.create_task(_outcome(work))
        rival_task = group.create_task(rival)
        await asyncio.wait((work_task, rival_task), return_when=asyncio.FIRST_COMPLETED)
        work_task.cancel()
        rival_task.cancel()
    if work_task.cancelled():
        raise LostRace
    return work_task.result()()


async def _outcome(work: Coroutine[Any, Any, T]) -> Callable[[], T]:
    try:
        value = await work
    except Exception as exc:
        failure = exc
        return lambda: _raise(failure)
    return lambda: value


def _raise(failure: Exception) -> NoReturn:
    raise failure


async def with_timeout(clock: Clock, within: timedelta, call: Coroutine[Any, Any, T]) -> T:
    """Return the answer of a store call. Raises StoreUnavailable if the store does not answer in the time ``within``."""
    try:
        return await race(clock.sleep(within), call)
    except LostRace:
        raise StoreUnavailable(f"the store did not answer within {within.total_seconds():g} s; is it up?") from None


async def pause(clock: Clock, duration: timedelta, until: asyncio.Event) -> bool:
    """Sleep for ``duration``, or until the event ``until`` is set. Returns whether the event is set."""
    with contextlib.suppress(LostRace):
        await race(until.wait(), clock.sleep(duration))
    return until.is_set()


def next_due(due: timedelta, every: timedelta, now: timedelta) -> timedelta:
    """Return the first time after ``now`` in the schedule ``due``, ``due + every``, …; missed times are skipped."""
    missed = max((now - due) // every, 0)
    return due + (missed + 1) * every


def describe(exc: BaseException) -> str:
    """Return an error as text, with the class name in front unless it is one of Drumbeat's own errors.

    Of an ExceptionGroup, the first error is returned.
    """
    error = first_error(exc)
    return str(error) if isinstance(error, DrumbeatError) else f"{type(error).__name__}: {error}"


def truncate(text: str, longest: int) -> str:
    """Cut text after ``longest`` characters, and mark the cut. Escapes NUL and invalid Unicode, which databases refuse."""
    clean = text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")
    return clean if len(clean) <= longest else clean[:longest] + _CUT
