"""Waits for delayed jobs, retries and jobs that wait for other jobs, and starts workers when such a job can run, without cron.

Only one process watches a pool: the one that holds the lease for it. It watches until no job of the pool is pending or waiting.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from datetime import timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.errors import DrumbeatError
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.pool.model import PoolPolicy
from drumbeat.runtime.lease import Leadership
from drumbeat.runtime.task_group import plain_task_group
from drumbeat.store.interface import ClaimRequest, Due, Store

log = logging.getLogger(__name__)

POLL_EVERY = timedelta(seconds=15)  #: the longest sleep between two reads of the queue: a new job may be due earlier
_WAITING_POLL = timedelta(seconds=5)  #: the sleep between two reads if all jobs wait for other jobs
HELD = timedelta(seconds=60)  #: how long the lease on a watched pool lasts unless renewed
_PAUSES = (timedelta(seconds=2), timedelta(minutes=10))  #: first and longest pause between checks while jobs stay ready
_SHORTEST_WAIT = timedelta(milliseconds=100)
_NO_HOLDER = Holder(pool_id=PoolId(""), worker_id=WorkerId(""))
_NEVER = Due(is_ready=False, next_in=None)
_MOST_FAILURES = 20  #: store errors in a row after which the process stops watching


async def when_due(store: Store, pool_id: PoolId) -> Due:
    """Return when a worker of the pool can next claim a job. Never, if the pool does not exist, or has neither a pending job
    for its workers nor a job that waits for others. Also never for a fleet's pool, because a fleet checks its queue itself."""
    pool = await store.pools.find(pool_id)
    if pool is None or pool.is_scaled:
        return _NEVER
    policy = PoolPolicy.from_json(pool.policy)
    every_type = ClaimRequest(
        pool_id=pool_id, holder=_NO_HOLDER, lease=timedelta(), capabilities=policy.capabilities, types=policy.types
    )
    due = await store.jobs.due(replace(every_type, without=tuple(policy.paused)))
    if policy.paused and due.wait is None and (await store.jobs.due(every_type)).wait is not None:
        due = Due(is_ready=False, next_in=POLL_EVERY)  # another process may resume the paused type
    if due.wait is None and await has_waiting(store, pool_id):
        due = Due(is_ready=False, next_in=_WAITING_POLL)
    paused = timedelta() if pool.paused_until is None else pool.paused_until - await store.now()
    if due.wait is None or paused <= timedelta():
        return due
    return Due(is_ready=False, next_in=max(due.wait, paused))


async def has_waiting(store: Store, pool_id: PoolId) -> bool:
    """Whether the pool has jobs that wait for other jobs. They become ready when a job ends, perhaps one of another pool."""
    return (await store.jobs.counts(pool_id, 1)).waiting > 0


async def is_watched(store: Store, pool_id: PoolId) -> bool:
    """Whether a process watches the pool for due jobs."""
    lease = await store.leases.find(_lease_name(pool_id))
    return lease is not None and lease.expires_at > await store.now()


class _Pace:
    """Decides when to check a pool: when a job becomes due, then after longer and longer pauses while jobs wait unclaimed."""

    def __init__(self, now: timedelta) -> None:
        self._pause = _PAUSES[0]
        self._last = now - _PAUSES[0]  #: when the pool was last checked
        self._again = now  #: when to check the pool again if jobs are still ready
        self._next: timedelta | None = None  #: when the next job becomes due

    def is_time(self, due: Due, now: timedelta) -> bool:
        came_due = self._next is not None and now >= self._next
        self._next = None if due.next_in is None else now + due.next_in
        if came_due or not due.is_ready:
            self._pause, self._again = _PAUSES[0], min(self._again, self._last + _PAUSES[0])
        if not due.is_ready or now < self._again:
            return False
        self._last, self._again = now, now + self._pause
        self._pause = min(self._pause * 2, _PAUSES[1])
        return True

    def wait(self, due: Due, now: timedelta) -> timedelta:
        """Return how long to sleep before the queue is read again."""
        ends = [each - now for each in (self._again if due.is_ready else None, self._next) if each is not None]
        return min(max(min(ends, default=POLL_EVERY), _SHORTEST_WAIT), POLL_EVERY)


class DueJobWatcher:
    """Checks a pool when one of its delayed jobs becomes due. The check then decides whether more workers are needed."""

    def __init__(self, store: Store, clock: Clock, owner: str, wake: Callable[[PoolId], Awaitable[object]]) -> None:
        """``wake`` checks a pool and starts the workers it needs; ``owner`` is unique to this process."""
        self._store = store
        self._clock = clock
        self._owner = owner
        self._wake = wake

    async def watch(self, pool_id: PoolId, within: timedelta | None = None) -> None:
        """Watch one pool until no job is pending, at most for ``within``. Returns at once if another process watches it.
        Raises DrumbeatError after many store errors in a row."""
        until = None if within is None else self._clock.elapsed() + within
        lease = self._lease(_lease_name(pool_id))
        try:
            while await lease.hold() is not None:
                if not await self._while_pending(pool_id, lease, until):
                    log.info("stopped watching pool %s for due jobs: another process has taken over", pool_id)
                    return
                await lease.resign()
                if self._is_over(until) or not await self._is_pending(pool_id):
                    return  # no job was pushed before the lease was released; a later push starts another watcher
        finally:
            await lease.resign()

    def _lease(self, name: str) -> Leadership:
        return Leadership(self._store, name, self._owner, HELD, self._clock)

    async def _is_pending(self, pool_id: PoolId) -> bool:
        return (await when_due(self._store, pool_id)).wait is not None

    def _is_over(self, until: timedelta | None) -> bool:
        return until is not None and self._clock.elapsed() >= until

    async def _while_pending(self, pool_id: PoolId, lease: Leadership, until: timedelta | None) -> bool:
        """Check the pool whenever a job becomes due, until no job is pending or ``until`` is reached.

        Returns False if another process has taken over the lease.
        """
        failures, pace = 0, _Pace(self._clock.elapsed())
        while not self._is_over(until):
            wait = POLL_EVERY
            try:
                if await lease.hold() is None:
                    return False
                due = await when_due(self._store, pool_id)
                if due.wait is None:
                    return True
                if pace.is_time(due, self._clock.elapsed()):
                    log.info("pool %s has jobs that are due; checking whether it needs workers", pool_id)
                    await self._wake(pool_id)
                wait = pace.wait(due, self._clock.elapsed())
                failures = 0
            except DrumbeatError as exc:
                failures += 1
                if failures >= _MOST_FAILURES:
                    raise
                log.warning("failed to check pool %s for due jobs: %s; retrying in %g s", pool_id, exc, wait.total_seconds())
            await self._clock.sleep(wait)
        return True

    async def keep(self, pools: Callable[[], Awaitable[Collection[PoolId]]], place: str) -> None:
        """Watch the pools that ``pools`` returns, and start workers when their delayed jobs become due, until cancelled. Of all
        processes with the same ``place`` (a host and a triggers file), only one does this."""
        lease, watching = self._lease(f"due/{place}"), dict[PoolId, asyncio.Task[None]]()
        async with plain_task_group() as group:
            try:
                while True:
                    try:
                        for pool_id in await pools() if await lease.hold() is not None else ():
                            task = watching.get(pool_id)
                            if (task is None or task.done()) and await self._is_pending(pool_id):
                                watching[pool_id] = group.create_task(self._try_to_watch(pool_id))
                    except DrumbeatError as exc:
                        log.warning("failed to look for due jobs: %s; retrying in %g s", exc, POLL_EVERY.total_seconds())
                    await self._clock.sleep(POLL_EVERY)
            finally:
                await lease.resign()

    async def _try_to_watch(self, pool_id: PoolId) -> None:
        try:
            await self.watch(pool_id)
        except Exception:
            log.exception("failed to watch pool %s for due jobs; retrying later", pool_id)


def _lease_name(pool_id: PoolId) -> str:
    return f"due/pool/{pool_id}"
