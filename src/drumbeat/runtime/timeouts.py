"""Waiting that has an end: for an answer, for an event, for whichever comes first."""

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
    """Something else came first. Never leaves this package."""


async def race(rival: Coroutine[Any, Any, object], work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` returns or raises. If ``rival`` is over first, ``work`` is cancelled and Overtaken raised."""
    async with asyncio.TaskGroup() as group:
        wanted = group.create_task(_outcome(work))
        other = group.create_task(rival)
        await asyncio.wait((wanted, other), return_when=asyncio.FIRST_COMPLETED)
        wanted.cancel()
        other.cancel()
    if wanted.cancelled():
        raise LostRace
    return wanted.result()()


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
    """The store's answer. Raises StoreUnavailable when none comes in time."""
    try:
        return await race(clock.sleep(within), call)
    except LostRace:
        raise StoreUnavailable(f"expected an answer within {within.total_seconds():g} s, got none; is the store up?") from None


async def pause(clock: Clock, duration: timedelta, until: asyncio.Event) -> bool:
    """Wait, but no longer than until the event; whether the event is set."""
    with contextlib.suppress(LostRace):
        await race(until.wait(), clock.sleep(duration))
    return until.is_set()


def next_due(due: timedelta, every: timedelta, now: timedelta) -> timedelta:
    """The first moment of the schedule after ``now``: one that was missed is not made up for."""
    missed = max((now - due) // every, 0)
    return due + (missed + 1) * every


def describe(exc: BaseException) -> str:
    """An error in one line: ours speak for themselves, others need their kind named."""
    return str(exc) if isinstance(exc, DrumbeatError) else f"{type(exc).__name__}: {exc}"


def cut(text: str, longest: int) -> str:
    """The text as any database takes it: no NUL, nothing that is not Unicode, and if too long its beginning and a mark."""
    clean = text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode("utf-8")
    return clean if len(clean) <= longest else clean[:longest] + _CUT
