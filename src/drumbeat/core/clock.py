"""Time as an argument: the one file that may look at the wall."""

import asyncio
import heapq
import itertools
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What the time is, and a way to wait."""

    def now(self) -> datetime:
        """The wall clock, aware, UTC."""
        ...

    def elapsed(self) -> timedelta:
        """Time since some fixed moment; never goes back, whatever happens to the wall clock."""
        ...

    async def sleep(self, duration: timedelta) -> None:
        """Return once ``duration`` has passed."""
        ...


_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  #: goes on while the machine is suspended


class SystemClock:
    """The machine's own time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed(self) -> timedelta:
        return timedelta(microseconds=time.clock_gettime_ns(_SINCE_BOOT) // 1000)

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(max(0.0, duration.total_seconds()))


class ManualClock:
    """Time that moves only when a test says so."""

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
        """Move on, waking each sleeper at its own moment and letting it run before the next."""
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
        """Time passes and nobody runs meanwhile, as on a machine that stands still."""
        self._elapsed += duration


async def _settle(turns: int) -> None:
    """Let others run: so many turns at the most, fewer where the loop can tell that nobody has anything left to do."""
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    for _ in range(turns):
        await asyncio.sleep(0)
        if ready is not None and not ready:
            return
