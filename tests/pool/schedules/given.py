"""Stores for the tests of schedules: one of each kind, with the time that the test says."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from drumbeat.core.clock import ManualClock
from drumbeat.core.job import Job
from drumbeat.core.pool import PoolId
from drumbeat.pool.schedules.service import Schedules
from drumbeat.pool.schedules.tick_pusher import TickPusher
from drumbeat.pool.service import Pool
from drumbeat.store.interface import Store

MAIL = PoolId("mail")
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class ShiftedStore:
    """A store whose clock shows what the test says, and whose calls can be made to fail."""

    def __init__(self, inner: Store, now: datetime) -> None:
        self._inner = inner
        self.time = now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def now(self) -> datetime:
        return self.time


class Planned:
    """A pool with schedules in a store, and processes that look after them."""

    def __init__(self, store: Store, pool_id: PoolId = MAIL, begin: str = "2026-01-01 00:00") -> None:
        self.store: Any = ShiftedStore(store, at(begin))
        self.clock = ManualClock()
        self.pool = Pool(self.store, self.clock, pool_id, "me")

    @property
    def schedules(self) -> Schedules:
        return self.pool.schedules

    async def look(self, owner: str = "a") -> timedelta | None:
        """One process looks after the schedules, once."""
        return await TickPusher(self.store, self.clock, owner).push_due(await self.store.pools.get(self.pool.pool_id))

    async def look_at(self, text: str) -> list[str]:
        """A process looks at this time. Returns all ticks that have a job."""
        self.go_to(text)
        await self.look()
        return await self.ticks()

    def go_to(self, text: str) -> None:
        """From now on it is this time."""
        self.store.time = at(text)

    async def jobs(self) -> Sequence[Job]:
        return await self.store.jobs.list(self.pool.pool_id)  # type: ignore[no-any-return]

    async def ticks(self) -> list[str]:
        """The ticks of the jobs, as day and time."""
        return sorted(each.job_id.split("@")[1][6:13] for each in await self.jobs())
