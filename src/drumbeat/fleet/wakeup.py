"""Wake a controller between two beats when the first job is pushed to an empty queue."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError
from drumbeat.core.pool import PoolId
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

_LISTEN_FOR = timedelta(minutes=1)
_PAUSE = timedelta(seconds=1)  #: wait after a notification without new claimable jobs
_RETRY_AFTER = timedelta(seconds=5)


class PushWaker:
    """Sets ``woken`` when jobs arrive after a beat that found no claimable job.

    While a queue has claimable jobs, the waker does nothing: the regular beats are enough.
    """

    def __init__(self, store: Store, pool_id: PoolId, clock: Clock) -> None:
        self.woken = asyncio.Event()
        self._store = store
        self._pool_id = pool_id
        self._clock = clock
        self._idle = asyncio.Event()
        self._known = 0  #: number of ready jobs that the pool's workers cannot claim

    def on_beat(self, view: Mapping[str, Any] | None) -> None:
        """Start listening for new jobs if a beat observed a queue without claimable jobs; otherwise stop listening."""
        queue = (view or {}).get("queue")
        if queue is None or queue["ready"]:
            self._idle.clear()
            return
        self._known = queue["blocked"]
        self._idle.set()

    async def watch(self) -> None:
        """Listen for new jobs until cancelled. Errors are logged and retried, also if the pool is deleted, as it may be created
        again; the regular beats continue meanwhile."""
        while True:
            await self._idle.wait()
            try:
                if await self._has_new_jobs():
                    self._idle.clear()
                    self.woken.set()
                else:
                    await self._clock.sleep(_PAUSE)
            except DrumbeatError as exc:
                seconds = _RETRY_AFTER.total_seconds()
                log.info("failed to listen for new jobs of pool %s: %s; retrying in %g s", self._pool_id, exc, seconds)
                await self._clock.sleep(_RETRY_AFTER)

    async def _has_new_jobs(self) -> bool:
        await self._store.queue.wait(self._pool_id, _LISTEN_FOR)
        known = self._known
        return self._idle.is_set() and await self._store.jobs.size(self._pool_id, known + 1) > known
