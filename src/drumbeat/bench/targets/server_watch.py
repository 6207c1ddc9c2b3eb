"""Reads the statistics of the database under test during a load, usually once a second, and keeps the latest."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta

from drumbeat.bench.model import ServerProbe
from drumbeat.bench.model.server_totals import RunningTotals
from drumbeat.bench.targets.interface import NO_STATEMENTS, Statements, Target
from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError
from drumbeat.runtime.task_group import plain_task_group

log = logging.getLogger(__name__)

_TIMEOUT = 3.0  #: seconds to wait for an answer
_RETRY_PAUSE = timedelta(seconds=5)  #: how long to wait after a failed reading

Open = Callable[[], AbstractAsyncContextManager[Target]]


class ServerWatch:
    """Reads a server's statistics in the background; ``latest`` contains the last statistics read."""

    def __init__(self, open_target: Open, clock: Clock, statements: Statements = NO_STATEMENTS) -> None:
        self._open = open_target
        self._clock = clock
        self._statements = statements
        self._totals = RunningTotals()
        self._reads = 0
        self.latest: ServerProbe | None = None  #: None if nothing was read yet or the server has no statistics

    async def run(self) -> None:
        """Read statistics until cancelled. Errors and timeouts are logged and retried; they never stop the load."""
        while True:
            try:
                async with self._open() as target:
                    if not target.traits.signals:
                        return
                    await self._read_repeatedly(target)
            except (DrumbeatError, OSError, TimeoutError) as exc:
                self._failed(exc)
            except Exception as exc:
                log.exception("unexpected error while reading the statistics of the database under test; the load continues")
                self._failed(exc)
            await self._clock.sleep(_RETRY_PAUSE)

    def _failed(self, exc: Exception) -> None:
        reason, pause = str(exc) or type(exc).__name__, _RETRY_PAUSE.total_seconds()
        log.warning("failed to read the statistics of the database under test: %s; retrying in %g s", reason, pause)
        self.latest = ServerProbe(error=reason)

    async def _read_repeatedly(self, target: Target) -> None:
        while True:
            self.latest = await _within(self.ask(target))
            await self._clock.sleep(target.traits.read_every)

    async def ask(self, target: Target) -> ServerProbe:
        """Read the server's statistics once. If the server resets its totals, those in the result continue to rise."""
        self._reads += 1
        look, signals = self._reads, await target.signals()
        counters = self._totals.update(await target.counters(self._statements))
        if signals is None:
            return ServerProbe(look=look, counters=counters)
        return ServerProbe(
            look=look,
            sessions=signals.sessions,
            active=signals.active,
            waiting=signals.waiting,
            lock_waits=signals.lock_waits,
            wait_events=signals.wait_events,
            counters=counters,
        )


async def _within(reading: Awaitable[ServerProbe]) -> ServerProbe:
    async with asyncio.timeout(_TIMEOUT):
        return await reading


@asynccontextmanager
async def watch_statistics(
    open_target: Open, clock: Clock, statements: Statements = NO_STATEMENTS
) -> AsyncIterator[Callable[[], ServerProbe | None]]:
    """Read statistics while the ``async with`` block runs. Yields a function that returns the latest statistics."""
    watch = ServerWatch(open_target, clock, statements)
    async with plain_task_group() as group:
        task = group.create_task(watch.run())
        try:
            yield lambda: watch.latest
        finally:
            task.cancel()
