"""Events, in Redis: one stream per pool, with the event numbers as stream ids."""

from collections.abc import Sequence

from drumbeat.core.event import Event, NewEvent
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.store.interface import BATCH
from drumbeat.store.redis.database import RedisDatabase
from drumbeat.store.redis.rows import decoded_event, event_arguments, event_of, fence_arguments, instant


class RedisEvents:
    def __init__(self, database: RedisDatabase) -> None:
        self._database = database

    async def append(self, pool_id: PoolId, events: Sequence[NewEvent], *, fence: Fence | None = None) -> Sequence[Event]:
        arguments = [argument for event in events for argument in event_arguments(event)]
        at, numbers = await self._database.run("event_append", *fence_arguments(fence), pool_id, *arguments)
        return [decoded_event(pool_id, event, number, instant(at)) for event, number in zip(events, numbers, strict=True)]

    async def read(self, pool_id: PoolId, after: int, limit: int = BATCH) -> Sequence[Event]:
        return [event_of(pool_id, entry) for entry in await self._database.run("event_read", pool_id, after, limit)]
