"""The job queue in Snowflake. It runs the scripts of SQLite's queue, because here too only one transaction writes at a time."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from drumbeat.core.pool import PoolId
from drumbeat.store.sql.queue import Subscription
from drumbeat.store.sql.sqlite_queue import SqliteQueue


class SnowflakeQueue(SqliteQueue):
    """The job queue in Snowflake. A waiting worker sees a job from another process only at its next poll."""

    poll_interval = timedelta(seconds=5)


class ProcessNotify:
    """Wakes the callers in this process that wait for jobs. Other processes poll, because Snowflake has no notifications."""

    def __init__(self) -> None:
        self._waiters: defaultdict[PoolId, set[asyncio.Event]] = defaultdict(set)

    @asynccontextmanager
    async def listening(self, pool_id: PoolId) -> AsyncIterator[Subscription]:
        notified = asyncio.Event()
        self._waiters[pool_id].add(notified)
        try:
            yield Subscription(notified, live=True)
        finally:
            self._waiters[pool_id].discard(notified)
            if not self._waiters[pool_id]:
                del self._waiters[pool_id]

    async def notify(self, pool_id: PoolId) -> None:
        for waiter in self._waiters.get(pool_id, ()):
            waiter.set()
