"""Waiting with a limit: for a result, for an event, or for the first of two tasks."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError, StoreUnavailable

T = TypeVar("T")

_CUT = "...(truncated)"


class LostRace(Exception):
    """The rival of ``race`` finished first. Never leaves this package."""


async def race(rival: Coroutine[Any, Any, object], work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``. If ``rival`` finishes first, ``work`` is cancelled and LostRace raised."""
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
    """The answer of a store call. Raises StoreUnavailable when none comes in time."""
    try:
        return await race(clock.sleep(within), call)
    except LostRace:
        raise StoreUnavailable(f"expected an answer within {within.total_seconds():g} s, got none; is the store up?") from None


async def pause(clock: Clock, duration: timedelta, until: asyncio.Event) -> bool:
    """Sleep, but wake early when the event is set. Returns whether it is set."""
    with contextlib.suppress(LostRace):
        await race(until.wait(), clock.sleep(duration))
    return until.is_set()


def next_due(due: timedelta, every: timedelta, now: timedelta) -> timedelta:
    """The first moment of the schedule after ``now``; missed moments are skipped."""
    missed = max((now - due) // every, 0)
    return due + (missed + 1) * every


def describe(exc: BaseException) -> str:
    """An error as text; errors that are not Drumbeat's get their class name in front."""
    return str(exc) if isinstance(exc, DrumbeatError) else f"{type(exc).__name__}: {exc}"


def cut(text: str, longest: int) -> str:
    """The text without NUL and invalid Unicode, so that any database accepts it, and truncated if too long."""
    clean = text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")
    return clean if len(clean) <= longest else clean[:longest] + _CUT
