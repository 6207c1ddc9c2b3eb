"""Asking the database under test how it is, once a second, beside the load; whoever wants to know takes the latest answer."""

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

log = logging.getLogger(__name__)

EVERY = timedelta(seconds=1)
_PATIENCE = 3.0  #: seconds; a database too busy to answer is not waited for
_AGAIN = timedelta(seconds=5)  #: after it could not be reached

Open = Callable[[], AbstractAsyncContextManager[Target]]


class ServerWatch:
    """The latest of what a server says of itself."""

    def __init__(self, open_target: Open, clock: Clock, statements: Statements = NO_STATEMENTS) -> None:
        self._open = open_target
        self._clock = clock
        self._statements = statements
        self._totals = RunningTotals()
        self._looks = 0
        self.latest: ServerProbe | None = None  #: None: it has not been asked yet, or has nothing to say

    async def run(self) -> None:
        """Ask until cancelled. It may fail, be slow or be gone: the load goes on."""
        while True:
            try:
                async with self._open() as target:
                    if not target.traits.signals:
                        return
                    await self._ask_on(target)
            except (DrumbeatError, OSError, TimeoutError) as exc:
                self._failed(exc)
            except Exception as exc:
                log.exception("asking the database how it is failed")
                self._failed(exc)
            await self._clock.sleep(_AGAIN)

    def _failed(self, exc: Exception) -> None:
        why = str(exc) or type(exc).__name__
        log.warning("the database could not be asked how it is: %s; asking again in %g s", why, _AGAIN.total_seconds())
        self.latest = ServerProbe(error=why)

    async def _ask_on(self, target: Target) -> None:
        while True:
            self.latest = await _within(self.ask(target))
            await self._clock.sleep(EVERY)

    async def ask(self, target: Target) -> ServerProbe:
        """What the server says now; its totals never fall, even if it begins them again."""
        self._looks += 1
        look, signals = self._looks, await target.signals()
        counters = self._totals.seen(await target.counters(self._statements))
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


async def _within(asking: Awaitable[ServerProbe]) -> ServerProbe:
    async with asyncio.timeout(_PATIENCE):
        return await asking


@asynccontextmanager
async def watching(
    open_target: Open, clock: Clock, statements: Statements = NO_STATEMENTS
) -> AsyncIterator[Callable[[], ServerProbe | None]]:
    """What the server last said, for as long as the block lasts. ``statements``: the SQL of each kind, to be told apart."""
    watch = ServerWatch(open_target, clock, statements)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watch.run())
        try:
            yield lambda: watch.latest
        finally:
            task.cancel()
