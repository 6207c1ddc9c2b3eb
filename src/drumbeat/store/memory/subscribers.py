"""Who waits for work, in memory, and how they hear of it."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.pool import PoolId


@dataclass(slots=True, kw_only=True)
class Subscribers:
    """A count of news per pool, and up to which a claim has looked in vain: whatever came later is worth a look."""

    told: Counter[PoolId] = field(default_factory=Counter)
    seen: Counter[PoolId] = field(default_factory=Counter)
    waiting: dict[PoolId, set[asyncio.Future[bool]]] = field(default_factory=dict)

    def tell(self, pool_id: PoolId) -> None:
        self.told[pool_id] += 1
        for waiter in self.waiting.pop(pool_id, ()):
            waiter.get_loop().call_soon_threadsafe(_answer, waiter, True)

    def looked(self, pool_id: PoolId) -> None:
        """A claim found no more."""
        self.seen[pool_id] = self.told[pool_id]

    async def wait(self, pool_id: PoolId, clock: Clock, within: timedelta, *, due: bool) -> bool:
        """Wait for news, at most so long; ``due``: the end of it is news too."""
        if self.told[pool_id] != self.seen[pool_id]:
            self.looked(pool_id)
            return True
        heard: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(pool_id, set()).add(heard)
        async with asyncio.TaskGroup() as group:
            limit = group.create_task(_answer_later(clock, within, heard, due))
            try:
                return await heard
            finally:
                limit.cancel()
                self.waiting.get(pool_id, set()).discard(heard)


async def _answer_later(clock: Clock, within: timedelta, heard: asyncio.Future[bool], due: bool) -> None:
    await clock.sleep(within)
    _answer(heard, due)


def _answer(waiter: asyncio.Future[bool], answer: bool) -> None:
    if not waiter.done():
        waiter.set_result(answer)
