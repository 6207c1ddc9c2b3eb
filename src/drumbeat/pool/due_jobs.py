"""Watching for jobs that come due later: retries and delayed jobs start workers without cron.

Whoever watches a pool holds a lease of its own, so one process does it for all; it lasts for as long as jobs are pending there.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError, Fenced
from drumbeat.core.lease import Lease
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.pool.model import PoolPolicy
from drumbeat.store.interface import Claiming, Due, Store

log = logging.getLogger(__name__)

LOOK_EVERY = timedelta(seconds=15)  #: a sleep is never longer: a job may be pushed that comes due before the others
HELD = timedelta(seconds=60)  #: how long the lease lasts unless renewed
_AGAIN = (timedelta(seconds=2), timedelta(minutes=10))  #: between wakes that start nobody: the first, the longest
_SHORTEST_WAIT = timedelta(milliseconds=100)
_NOBODY = Holder(pool_id=PoolId(""), worker_id=WorkerId(""))
_NEVER = Due(is_ready=False, next_in=None)
_MOST_FAILURES = 20  #: looks in a row that the store does not answer, until a watch is given up


async def when_due(store: Store, pool_id: PoolId) -> Due:
    """When workers of a pool have something to claim. Never, where nothing is pending for them, or the pool is gone, or a
    fleet's: that one looks by itself."""
    home = await store.pools.find(pool_id)
    if home is None or home.is_scaled:
        return _NEVER
    policy = PoolPolicy.from_json(home.policy)
    due = await store.jobs.due(
        Claiming(pool_id=pool_id, holder=_NOBODY, lease=timedelta(), capabilities=policy.capabilities, types=policy.types)
    )
    paused = timedelta() if home.paused_until is None else home.paused_until - await store.now()
    if due.wait is None or paused <= timedelta():
        return due
    return Due(is_ready=False, next_in=max(due.wait, paused))


async def is_watched(store: Store, pool_id: PoolId) -> bool:
    """Whether some process watches a pool."""
    lease = await store.leases.find(_lease_name(pool_id))
    return lease is not None and lease.expires_at > await store.now()


class _Pace:
    """When a pool is woken: as soon as a job comes due, then after longer and longer pauses for as long as one is."""

    def __init__(self, now: timedelta) -> None:
        self._pause = _AGAIN[0]
        self._last = now - _AGAIN[0]  #: wake
        self._again = now  #: the next wake
        self._next: timedelta | None = None  #: when the next job comes due

    def is_time(self, due: Due, now: timedelta) -> bool:
        came_due = self._next is not None and now >= self._next
        self._next = None if due.next_in is None else now + due.next_in
        if came_due or not due.is_ready:
            self._pause, self._again = _AGAIN[0], min(self._again, self._last + _AGAIN[0])
        if not due.is_ready or now < self._again:
            return False
        self._last, self._again = now, now + self._pause
        self._pause = min(self._pause * 2, _AGAIN[1])
        return True

    def wait(self, due: Due, now: timedelta) -> timedelta:
        """How long until the next look."""
        ends = [each - now for each in (self._again if due.is_ready else None, self._next) if each is not None]
        return min(max(min(ends, default=LOOK_EVERY), _SHORTEST_WAIT), LOOK_EVERY)


class DueWatch:
    """Wakes pools whose jobs have come due. Workers may be there: a check weighs by itself whether they have room."""

    def __init__(self, store: Store, clock: Clock, owner: str, wake: Callable[[PoolId], Awaitable[object]]) -> None:
        """``wake`` has workers started for a pool, as a trigger does; ``owner`` is unique to this process."""
        self._store = store
        self._clock = clock
        self._owner = owner
        self._wake = wake

    async def watch(self, pool_id: PoolId, within: timedelta | None = None) -> None:
        """Watch one pool until nothing is pending there, or for ``within``. Returns at once while another process does.

        Raises DrumbeatError when the store has not answered for long.
        """
        until = None if within is None else self._clock.elapsed() + within
        while (lease := await self._store.leases.acquire(_lease_name(pool_id), self._owner, HELD)) is not None:
            try:
                await self._while_pending(pool_id, lease, until)
            except Fenced:
                log.info("another process watches pool %s now", pool_id)
                return
            finally:
                await self._store.leases.release(lease)
            if self._is_over(until) or not await self._is_pending(pool_id):
                return  # what was pushed before the lease was let go is seen by this last look, what comes later by others

    async def _is_pending(self, pool_id: PoolId) -> bool:
        return (await when_due(self._store, pool_id)).wait is not None

    def _is_over(self, until: timedelta | None) -> bool:
        return until is not None and self._clock.elapsed() >= until

    async def _while_pending(self, pool_id: PoolId, lease: Lease, until: timedelta | None) -> None:
        failures, pace = 0, _Pace(self._clock.elapsed())
        while not self._is_over(until):
            wait = LOOK_EVERY
            try:
                await self._store.leases.renew(lease, HELD)
                due = await when_due(self._store, pool_id)
                if due.wait is None:
                    return
                if pace.is_time(due, self._clock.elapsed()):
                    log.info("jobs of pool %s have come due; checking it", pool_id)
                    await self._wake(pool_id)
                wait = pace.wait(due, self._clock.elapsed())
                failures = 0
            except Fenced:
                raise
            except DrumbeatError as exc:
                failures += 1
                if failures >= _MOST_FAILURES:
                    raise
                log.warning("%s; pool %s is watched further", exc, pool_id)
            await self._clock.sleep(wait)

    async def keep(self, pools: Callable[[], Awaitable[Collection[PoolId]]], place: str) -> None:
        """Watch those of some pools where jobs are pending, until cancelled. Of the processes in one ``place`` one does it."""
        async with asyncio.TaskGroup() as group:
            watching: dict[PoolId, asyncio.Task[None]] = {}
            lease: Lease | None = None
            while True:
                try:
                    lease = await self._turn(lease, place)
                    for pool_id in await pools() if lease else ():
                        task = watching.get(pool_id)
                        if (task is None or task.done()) and await self._is_pending(pool_id):
                            watching[pool_id] = group.create_task(self._try_to_watch(pool_id))
                except DrumbeatError as exc:
                    log.warning("%s; jobs that come due are looked for later", exc)
                await self._clock.sleep(LOOK_EVERY)

    async def _turn(self, lease: Lease | None, place: str) -> Lease | None:
        """Keep the turn to look, or take it if nobody has it."""
        try:
            if lease is not None:
                return await self._store.leases.renew(lease, HELD)
        except Fenced:
            log.info("another process in %s looks for jobs that come due", place)
        return await self._store.leases.acquire(f"due/{place}", self._owner, HELD)

    async def _try_to_watch(self, pool_id: PoolId) -> None:
        try:
            await self.watch(pool_id)
        except Exception:
            log.exception("pool %s could not be watched", pool_id)


def _lease_name(pool_id: PoolId) -> str:
    return f"due/pool/{pool_id}"
