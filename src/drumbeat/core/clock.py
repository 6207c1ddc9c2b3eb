"""Clocks that are passed as arguments, so that tests control time. Only this file is allowed to read the system clock."""

import asyncio
import heapq
import itertools
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """A clock that is passed as an argument: it tells the time and sleeps."""

    def now(self) -> datetime:
        """Return the wall-clock time, timezone-aware, in UTC."""
        ...

    def elapsed(self) -> timedelta:
        """Return the time since a fixed moment. It never goes back, even if the wall clock does."""
        ...

    async def sleep(self, duration: timedelta) -> None:
        """Return once ``duration`` has passed."""
        ...


_MICROSECOND = timedelta(microseconds=1)
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  #: keeps counting while the machine is suspended


class SystemClock:
    """The real clock of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed(self) -> timedelta:
        return time.clock_gettime_ns(_SINCE_BOOT) // 1000 * _MICROSECOND

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(max(0.0, duration.total_seconds()))


class ManualClock:
    """A clock that moves only when a test moves it."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = timedelta()
        self._order = itertools.count()
        self._sleepers: list[tuple[timedelta, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._start + self._elapsed

    def elapsed(self) -> timedelta:
        return self._elapsed

    async def sleep(self, duration: timedelta) -> None:
        if duration <= timedelta():
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + duration, next(self._order), woken))
        await woken

    async def advance(self, duration: timedelta, settle: int = 20) -> None:
        """Move time forward: wake each sleeping task at its time, and let it run before waking the next one."""
        until = self._elapsed + duration
        await _settle(settle)
        while self._sleepers and self._sleepers[0][0] <= until:
            due, _, woken = heapq.heappop(self._sleepers)
            self._elapsed = max(self._elapsed, due)
            if not woken.done():
                woken.set_result(None)
            await _settle(settle)
        self._elapsed = until

    def jump(self, duration: timedelta) -> None:
        """Move time forward without running any task, as on a suspended machine."""
        self._elapsed += duration


async def _settle(turns: int) -> None:
    """Let other tasks run for at most ``turns`` turns of the event loop; stop early if no task is ready."""
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    for _ in range(turns):
        await asyncio.sleep(0)
        if ready is not None and not ready:
            return
