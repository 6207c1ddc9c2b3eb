"""In-loop triggers: after a push, a beat (one pass of the control loop) runs as a task in the caller's event loop.

The caller does not wait for it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from drumbeat.runtime.task_group import plain_task_group
from drumbeat.triggers.model import RunBeats, Trigger

log = logging.getLogger(__name__)


class InLoop:
    """Runs beats in the background: at most one at a time per trigger and pool. Pushes during a beat cause one more beat."""

    def __init__(self, run: RunBeats, group: asyncio.TaskGroup) -> None:
        self._run = run
        self._group = group
        self._running: set[tuple[str, str]] = set()
        self._again: set[tuple[str, str]] = set()

    def fire(self, trigger: Trigger, pool_id: str) -> None:
        """Start a beat in the background and return at once; if a beat runs already, run one more after it."""
        key = (trigger.name, pool_id)
        if key in self._running:
            self._again.add(key)
            return
        self._running.add(key)
        self._group.create_task(self._beats(trigger, pool_id))

    async def _beats(self, trigger: Trigger, pool_id: str) -> None:
        key = (trigger.name, pool_id)
        try:
            while True:
                self._again.discard(key)
                await self._beat(trigger, pool_id)
                if key not in self._again:
                    return
        finally:
            self._running.discard(key)

    async def _beat(self, trigger: Trigger, pool_id: str) -> None:
        try:
            log.info("trigger %s fired; result: %s", trigger.name, await self._run(trigger.firing(pool_id)))
        except Exception:
            log.exception("trigger %s failed for pool %s; the next push fires it again", trigger.name, pool_id)


@asynccontextmanager
async def in_loop(run: RunBeats) -> AsyncIterator[InLoop]:
    """Run in-loop triggers while the ``async with`` block lasts. Leaving the block waits for running beats."""
    async with plain_task_group() as group:
        yield InLoop(run, group)
