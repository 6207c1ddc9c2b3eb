"""Wakes workers that wait for new jobs in a memory store."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.pool import PoolId


@dataclass(slots=True, kw_only=True)
class Subscribers:
    """Wakes workers that wait for jobs. Counts notifications per pool, so that ``wait`` returns at once after a missed one."""

    notified: Counter[PoolId] = field(default_factory=Counter)
    checked: Counter[PoolId] = field(default_factory=Counter)  #: ``notified`` at the last claim that found too few jobs
    waiting: dict[PoolId, set[asyncio.Future[bool]]] = field(default_factory=dict)

    def notify(self, pool_id: PoolId) -> None:
        self.notified[pool_id] += 1
        for waiter in self.waiting.pop(pool_id, ()):
            waiter.get_loop().call_soon_threadsafe(_answer, waiter, True)

    def mark_checked(self, pool_id: PoolId) -> None:
        """Mark all notifications of a pool so far as seen: only a later one ends the next ``wait`` before its time limit."""
        self.checked[pool_id] = self.notified[pool_id]

    async def wait(self, pool_id: PoolId, clock: Clock, within: timedelta, *, due: bool) -> bool:
        """Wait up to ``within`` for a notification of new jobs. Returns True if one came; otherwise the
        value of ``due``: whether a delayed job becomes ready at the end of this wait."""
        if self.notified[pool_id] != self.checked[pool_id]:
            self.mark_checked(pool_id)
            return True
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(pool_id, set()).add(waiter)
        async with asyncio.TaskGroup() as group:
            limit = group.create_task(_answer_later(clock, within, waiter, due))
            try:
                return await waiter
            finally:
                limit.cancel()
                self.waiting.get(pool_id, set()).discard(waiter)


async def _answer_later(clock: Clock, within: timedelta, waiter: asyncio.Future[bool], due: bool) -> None:
    await clock.sleep(within)
    _answer(waiter, due)


def _answer(waiter: asyncio.Future[bool], answer: bool) -> None:
    if not waiter.done():
        waiter.set_result(answer)
