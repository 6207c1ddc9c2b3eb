"""What wakes a controller between two beats: the first job that is pushed to a queue in which a beat saw nothing to do."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.errors import StoreError
from drumbeat.core.pool import PoolId
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

_LISTENED_FOR = timedelta(minutes=1)
_PAUSE = timedelta(seconds=1)  #: between two looks at news that were none for a fleet
_OUTAGE = timedelta(seconds=5)


class PushWaker:
    """Sets ``woken`` when there is more to claim than the last beat saw, if that saw nothing its workers could claim.

    While a queue has jobs, the beats come as often as they do: only a queue that was empty is listened to.
    """

    def __init__(self, store: Store, pool_id: PoolId, clock: Clock) -> None:
        self.woken = asyncio.Event()
        self._store = store
        self._pool_id = pool_id
        self._clock = clock
        self._idle = asyncio.Event()
        self._known = 0  #: ready jobs that its workers cannot claim

    def noted(self, view: Mapping[str, Any] | None) -> None:
        """Hear what a beat saw; one that stood by, or has no queue, has nothing to wait for."""
        queue = (view or {}).get("queue")
        if queue is None or queue["ready"]:
            self._idle.clear()
            return
        self._known = queue["blocked"]
        self._idle.set()

    async def watch(self) -> None:
        """Listen until cancelled. A store that is out of reach is asked again later: the beats go on without."""
        while True:
            await self._idle.wait()
            try:
                if await self._has_more():
                    self._idle.clear()
                    self.woken.set()
                else:
                    await self._clock.sleep(_PAUSE)
            except StoreError as exc:
                log.info("pushes to %s are not heard: %s; trying again in %g s", self._pool_id, exc, _OUTAGE.total_seconds())
                await self._clock.sleep(_OUTAGE)

    async def _has_more(self) -> bool:
        await self._store.queue.wait(self._pool_id, _LISTENED_FOR)
        known = self._known
        return self._idle.is_set() and await self._store.jobs.size(self._pool_id, known + 1) > known
