"""Leadership: one lease, and how long it may be believed without asking again."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.errors import Fenced, StoreError, StoreUnavailable
from drumbeat.core.lease import Lease
from drumbeat.runtime.timeouts import pause, with_timeout
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

_MARGIN = 5  #: a fifth of the lease's time is never used
_BEATS = 1.5  #: for so many beats a controller is believed to live: the next one takes over before two have passed
_LEAST = timedelta(seconds=2)  #: shorter than this a lease would change hands with every hiccup


def lease_for(every: timedelta) -> timedelta:
    """How long the lease of a controller lasts that beats so often."""
    return max(every * _BEATS, _LEAST)


class Leadership:
    """One owner's hold on one lease.

    A lease is trusted from the moment *before* it was asked for until a fifth of its time is left. The store counts from a
    later moment, so a process that was paused, or heard the answer late, stops before the store could give the lease away.
    ``owner`` must be unique to this process: a lease is never shared by two of one name.
    """

    def __init__(self, store: Store, name: str, owner: str, ttl: timedelta, clock: Clock) -> None:
        self._store = store
        self._name = name
        self._owner = owner
        self._ttl = ttl
        self._clock = clock
        self._lease: Lease | None = None
        self._trusted_until = timedelta()

    @property
    def owner(self) -> str:
        return self._owner

    @property
    def remaining(self) -> timedelta:
        """How much longer the lease may be acted on without asking again."""
        if self._lease is None:
            return timedelta()
        return max(self._trusted_until - self._clock.elapsed(), timedelta())

    @property
    def trusted(self) -> bool:
        return self.remaining > timedelta()

    @property
    def fresh(self) -> bool:
        """Whether over half of the trusted time is left, so that asking again can wait."""
        return self.remaining * 2 > self._ttl - self._ttl / _MARGIN

    async def hold(self) -> Lease | None:
        """Take the lease, or keep it. None when another has it.

        While the store is away a lease is kept as long as it is trusted; after that StoreUnavailable is raised.
        """
        sent = self._clock.elapsed()
        try:
            lease = await with_timeout(self._clock, self._ttl, self._ask())
        except Fenced as exc:
            log.warning("%s no longer leads %s: %s", self._owner, self._name, exc)
            self.forget()
            return None
        except StoreUnavailable:
            if not self.trusted:
                raise
            return self._lease
        self._lease = lease
        self._trusted_until = sent + self._ttl - self._ttl / _MARGIN
        return lease

    async def _ask(self) -> Lease | None:
        if self._lease is None:
            return await self._store.leases.acquire(self._name, self._owner, self._ttl)
        return await self._store.leases.renew(self._lease, self._ttl)

    async def leader(self) -> str | None:
        """Who had the lease last."""
        return (await self.held_by())[0]

    async def held_by(self) -> tuple[str | None, timedelta]:
        """Who had the lease last, and how long until it may be taken, unless it is renewed."""
        return await with_timeout(self._clock, self._ttl, self._look())

    async def _look(self) -> tuple[str | None, timedelta]:
        lease, now = await self._store.leases.find(self._name), await self._store.now()
        return (None, timedelta()) if lease is None else (lease.owner, max(lease.expires_at - now, timedelta()))

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Inside the block, which must raise nothing, the lease is renewed in time, however long a single step takes."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep(over))
            try:
                yield
            finally:
                over.set()

    async def _keep(self, over: asyncio.Event) -> None:
        while not await pause(self._clock, self._ttl / _MARGIN, over):
            if self._lease is None:
                return
            if not self.fresh:
                try:
                    await self.hold()
                except StoreError as exc:
                    log.warning("%s could not renew %s: %s", self._owner, self._name, exc)

    def forget(self) -> None:
        """Stop believing: the store has said that another leads."""
        self._lease = None

    async def resign(self) -> None:
        """Let the next one lead at once; if the store is away, it will have to wait for the lease to run out."""
        lease, self._lease = self._lease, None
        if lease is None:
            return
        try:
            await with_timeout(self._clock, self._ttl, self._store.leases.release(lease))
        except StoreError as exc:
            log.warning("%s could not release %s; it runs out by itself: %s", self._owner, self._name, exc)
