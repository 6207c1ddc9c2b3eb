"""Opens the store and its services (control plane) for a command. Does not import Typer or Rich, so that workers start fast."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from drumbeat.composition.plane import ControlPlane, open_control_plane
from drumbeat.core.errors import InvalidInput
from drumbeat.settings import Settings, load_settings

T = TypeVar("T")

_LONGEST_AGE = timedelta(days=36_500)
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, on uvloop if it is installed (the extra ``fast``)."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


def settings_for(store: str | None) -> Settings:
    return load_settings(os.environ, store=store)


@asynccontextmanager
async def open_plane(store: str | None, *, create: bool = False) -> AsyncIterator[ControlPlane]:
    async with open_control_plane(settings_for(store), create=create) as plane:
        yield plane


def with_control_plane(store: str | None, work: Callable[[ControlPlane], Awaitable[T]], *, create: bool = False) -> T:
    """Open the store's services (control plane), run ``work`` with them, close them. ``create``: create a missing store."""

    async def opened() -> T:
        async with open_plane(store, create=create) as plane:
            return await work(plane)

    return run(opened())


def parse_age(given: str, option: str) -> timedelta:
    """Parse the duration given with an option, such as 200ms, 90s, 1.5h, 30d or 4w. Raises InvalidInput."""
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|[smhdw])", given.strip())
    if found is None:
        raise InvalidInput(f"{option}: expected a duration such as 200ms, 90s, 12h or 30d, got {given!r}")
    count, unit = float(found[1]), timedelta(**{_UNITS[found[2]]: 1})
    if count > _LONGEST_AGE / unit:
        raise InvalidInput(f"{option}: expected a duration of at most {_LONGEST_AGE.days}d, got {given!r}")
    return count * unit


def parse_start(given: str, option: str) -> datetime:
    """Parse the time given with an option that sets when jobs start, in ISO format with a time zone. Raises InvalidInput."""
    example = "2026-12-24T18:00:00+01:00"
    try:
        found = datetime.fromisoformat(given.strip())
    except ValueError as exc:
        raise InvalidInput(f"expected {option} as an ISO time, such as {example}, got {given!r}") from exc
    if found.tzinfo is None:
        raise InvalidInput(
            f"expected {option} with a time zone, such as {example}, got {given!r}; for UTC, write {found.isoformat()}Z"
        )
    return found
