"""In-loop triggers: work was added, and a task of the caller's own event loop goes to look, without making it wait."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from drumbeat.triggers.model import Run, Trigger

log = logging.getLogger(__name__)


class InLoop:
    """Runs beats beside the caller. At most one at a time for each trigger and pool, and one more for what came meanwhile."""

    def __init__(self, run: Run, group: asyncio.TaskGroup) -> None:
        self._run = run
        self._group = group
        self._running: set[tuple[str, str]] = set()
        self._again: set[tuple[str, str]] = set()

    def fire(self, trigger: Trigger, pool_id: str) -> None:
        """Have a beat run soon; returns at once."""
        which = (trigger.name, pool_id)
        if which in self._running:
            self._again.add(which)
            return
        self._running.add(which)
        self._group.create_task(self._beats(trigger, pool_id))

    async def _beats(self, trigger: Trigger, pool_id: str) -> None:
        which = (trigger.name, pool_id)
        try:
            while True:
                self._again.discard(which)
                await self._beat(trigger, pool_id)
                if which not in self._again:
                    return
        finally:
            self._running.discard(which)

    async def _beat(self, trigger: Trigger, pool_id: str) -> None:
        try:
            log.info("trigger %s: %s", trigger.name, await self._run(trigger.firing(pool_id)))
        except Exception:
            log.exception("trigger %s failed for pool %s", trigger.name, pool_id)


@asynccontextmanager
async def in_loop(run: Run) -> AsyncIterator[InLoop]:
    """For as long as the block lasts. At its end the beats that run are waited for; nothing outlives it."""
    async with asyncio.TaskGroup() as group:
        yield InLoop(run, group)
