"""A controller's lease on leadership, and how long the controller can rely on it without renewal."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.errors import Fenced, StoreError, StoreUnavailable
from drumbeat.core.lease import Lease
from drumbeat.runtime.timeouts import pause, with_timeout
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

_MARGIN = 5  #: a fifth of the lease's duration is never used, as a safety margin
_BEATS = 1.5  #: a lease lasts this many beat intervals; another controller takes over within two
_LEAST = timedelta(seconds=2)  #: a shorter lease would change owners at every brief delay


def lease_for(every: timedelta) -> timedelta:
    """Return how long a lease should last if its controller runs a beat every ``every``."""
    return max(every * _BEATS, _LEAST)


class Leadership:
    """Acquires, renews and releases one lease for one owner.

    The owner relies on (trusts) its lease for four fifths of the duration, counted from when the owner *sent* the request. The
    store counts the full duration from when the request arrived. So an owner that was paused, or got the answer late, stops
    acting before another process can get the lease. ``owner`` must be unique to this process.
    """

    def __init__(self, store: Store, name: str, owner: str, ttl: timedelta, clock: Clock) -> None:
        self._store = store
        self._name = name
        self._owner = owner
        self._ttl = ttl
        self._clock = clock
        self._lease: Lease | None = None
        self._asked: asyncio.Task[Lease | None] | None = None  #: a request for the lease whose answer ``hold`` has not seen
        self._trusted_until = timedelta()

    @property
    def owner(self) -> str:
        return self._owner

    @property
    def remaining(self) -> timedelta:
        """Return how much longer the owner can rely on the lease without renewal; zero if this owner does not have it."""
        if self._lease is None:
            return timedelta()
        return max(self._trusted_until - self._clock.elapsed(), timedelta())

    @property
    def trusted(self) -> bool:
        return self.remaining > timedelta()

    @property
    def fresh(self) -> bool:
        """Whether it is too early to renew the lease: more than half of the time in which the owner trusts it is left."""
        return self.remaining * 2 > self._ttl - self._ttl / _MARGIN

    async def hold(self) -> Lease | None:
        """Acquire or renew the lease. Returns None if another owner has it.

        During a store outage the old lease is returned as long as it is trusted; after that StoreUnavailable is raised.
        """
        sent = self._clock.elapsed()
        try:
            lease = await with_timeout(self._clock, self._ttl, self._ask())
        except Fenced as exc:
            log.warning("%s has lost the lease %s and stops acting: %s", self._owner, self._name, exc)
            self.forget()
            return None
        except StoreUnavailable:
            if not self.trusted:
                raise
            return self._lease
        self._lease, self._asked = lease, None
        self._trusted_until = sent + self._ttl - self._ttl / _MARGIN
        return lease

    async def _ask(self) -> Lease | None:
        if self._lease is None:
            if self._asked is not None:
                self._asked.cancel()
            request = self._store.leases.acquire(self._name, self._owner, self._ttl)
            self._asked = asyncio.create_task(request)  # noqa: TID251 - a cancelled hold must not lose the answer: see resign
            return await asyncio.shield(self._asked)
        return await self._store.leases.renew(self._lease, self._ttl)

    async def held_by(self) -> tuple[str | None, timedelta]:
        """Return the owner of the lease (None if there was none), and how long until the lease expires if it is not renewed."""
        return await with_timeout(self._clock, self._ttl, self._find())

    async def _find(self) -> tuple[str | None, timedelta]:
        lease, now = await self._store.leases.find(self._name), await self._store.now()
        return (None, timedelta()) if lease is None else (lease.owner, max(lease.expires_at - now, timedelta()))

    @asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        """Keep renewing the lease in the background while an ``async with`` block runs.

        The block must not raise: its error would reach the caller as an ExceptionGroup.
        """
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew_until(over))
            try:
                yield
            finally:
                over.set()

    async def _renew_until(self, over: asyncio.Event) -> None:
        while not await pause(self._clock, self._ttl / _MARGIN, over):
            if self._lease is None:
                return
            if not self.fresh:
                try:
                    await self.hold()
                except StoreError as exc:
                    log.warning("%s failed to renew the lease %s: %s; trying again", self._owner, self._name, exc)

    def forget(self) -> None:
        """Treat the lease as lost, without a store call: the store has said that another owner has it."""
        self._lease = None

    async def resign(self) -> None:
        """Release the lease, so that another owner can acquire it at once. In a store outage, it stays until it expires."""
        if self._lease is None and self._asked is None:
            return
        try:
            await with_timeout(self._clock, self._ttl, self._release())
        except StoreError as exc:
            log.warning("%s failed to release the lease %s: %s; it expires by itself", self._owner, self._name, exc)

    async def _release(self) -> None:
        lease, self._lease = self._lease or await self._late_answer(), None
        if lease is not None and lease.owner == self._owner:
            await self._store.leases.release(lease)

    async def _late_answer(self) -> Lease | None:
        """Return the lease that a cancelled call of ``hold`` acquired without seeing the answer; None if it acquired none.

        If the request failed, the store might still have carried it out, so the lease is read from the store.
        """
        asked, self._asked = self._asked, None
        with suppress(StoreError):
            return await asked if asked is not None else None
        return await self._store.leases.find(self._name)
