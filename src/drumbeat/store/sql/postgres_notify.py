"""Wakes workers that wait for jobs, with LISTEN and NOTIFY: one channel per pool, one listening connection per store.

While the listening connection is lost, waiting workers poll the queue; each later wait may open a new connection.
"""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, Protocol

from drumbeat.core.errors import DrumbeatError
from drumbeat.core.pool import PoolId
from drumbeat.store.sql.database import Rows, Values
from drumbeat.store.sql.queue import Subscription

log = logging.getLogger(__name__)

RETRY_AFTER = 5.0  #: seconds before a new listening connection is opened after a failure
CHECK_AFTER = 30.0  #: seconds after which a listening connection is checked: if it was cut silently, nothing arrives any more
QUIET = 0.005  #: least seconds between two notifications that one process sends about one pool


@lru_cache(maxsize=1024)
def channel_of(schema: str, pool_id: PoolId) -> str:
    """Return the name of a pool's channel: a hash, since PostgreSQL limits the length of channel names."""
    return f"drumbeat_{hashlib.blake2s(f'{schema}/{pool_id}'.encode(), digest_size=12).hexdigest()}"


class NotifyDatabase(Protocol):
    """The methods of PostgresDatabase that PostgresNotify calls."""

    async def listener(self) -> Any: ...

    async def call_driver(self, call: Awaitable[object]) -> None: ...

    async def write(self, query: str, values: Values) -> Rows: ...


class PostgresNotify:
    """Wakes the processes that wait for a pool's jobs, at most once in QUIET seconds per pool."""

    def __init__(self, database: NotifyDatabase, schema: str) -> None:
        self._database = database
        self._schema = schema
        self._connection: Any = None
        self._is_failing = False  #: whether the last attempt to listen failed
        self._retry_at = 0.0  #: when to listen again after a failure (loop time)
        self._checked_at = 0.0  #: when the server last answered on the listening connection (loop time)
        self._opening = asyncio.Lock()
        self._channels: set[str] = set()
        self._waiters: dict[str, set[asyncio.Event]] = {}
        self._next: dict[str, float] = {}
        self._later: dict[str, asyncio.TimerHandle] = {}
        self._sending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, pool_id: PoolId) -> AsyncIterator[Subscription]:
        channel, notified = channel_of(self._schema, pool_id), asyncio.Event()
        self._waiters.setdefault(channel, set()).add(notified)
        try:
            live = await self._listen(channel)
            if not live:
                notified.clear()  # a failure to listen wakes all waiting callers; this one has not checked the queue yet
            yield Subscription(notified, live)
        finally:
            self._waiters[channel].discard(notified)

    def channel_to_notify(self, pool_id: PoolId) -> str | None:
        """Return the pool's channel if the caller's SQL statement must notify it. Returns None if this process notified it less
        than QUIET seconds ago; then this object itself sends a notification soon."""
        channel, loop = channel_of(self._schema, pool_id), asyncio.get_running_loop()
        now = loop.time()
        if now >= self._next.get(channel, 0.0):
            self._next[channel] = now + QUIET
            if channel in self._later:
                self._later.pop(channel).cancel()
            return channel
        if channel not in self._later:
            self._later[channel] = loop.call_at(self._next[channel] + QUIET, self._send_later, channel)
        return None

    def notify_later(self, channel: str | None) -> None:
        """Notify the channel in QUIET seconds, because the push that should notify it has failed. Earlier pushes may still
        need a notification: ``channel_to_notify`` has cancelled the one that was planned for them."""
        if channel is not None and channel not in self._later:
            self._later[channel] = asyncio.get_running_loop().call_later(QUIET, self._send_later, channel)

    async def notify(self, pool_id: PoolId) -> None:
        channel = self.channel_to_notify(pool_id)
        if channel is not None:
            await self._database.write("notify", {"channel": channel})

    async def close(self) -> None:
        for channel, later in [*self._later.items()]:
            later.cancel()
            self._send_later(channel)
        await asyncio.gather(*self._sending, return_exceptions=True)
        self._disconnect()

    def _send_later(self, channel: str) -> None:
        self._later.pop(channel, None)
        loop = asyncio.get_running_loop()
        self._next[channel] = loop.time() + QUIET
        task = loop.create_task(self._send(channel))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, channel: str) -> None:
        try:
            await self._database.write("notify", {"channel": channel})
        except DrumbeatError as exc:
            log.warning("could not notify waiting workers of new jobs: %s; the workers will find the jobs by polling", exc)

    async def _listen(self, channel: str) -> bool:
        """Start to listen on the channel. Returns False if notifications are not available now: then the caller must poll."""
        now = asyncio.get_running_loop().time
        async with self._opening:
            if now() < self._retry_at:
                return False
            try:
                is_listening = await self._listen_now(channel)
            except DrumbeatError as exc:
                self._disconnect()
                self._retry_at = now() + RETRY_AFTER
                if not self._is_failing:
                    log.warning("cannot be notified of new jobs, so polling for them and listening again later: %s", exc)
                self._is_failing = True
                return False
            if self._is_failing:
                log.info("notified of new jobs again")
            self._is_failing = False
            return is_listening

    async def _listen_now(self, channel: str) -> bool:
        """Listen on the channel, and after a reconnect on each channel for which others wait. Raises StoreUnavailable."""
        await self._connect()
        if self._connection is None:
            return False
        awaited = {each for each, waiters in self._waiters.items() if waiters}
        for missing in {channel, *awaited} - self._channels:
            await self._database.call_driver(self._connection.add_listener(missing, self._on_notification))
            self._channels.add(missing)
        return True

    async def _connect(self) -> None:
        """Open the listening connection, unless it is open and answers. Raises StoreUnavailable."""
        now = asyncio.get_running_loop().time
        if self._connection is None or self._connection.is_closed():
            self._channels.clear()
            self._connection = await self._database.listener()
            if self._connection is not None:
                self._connection.add_termination_listener(self._lost)
        elif now() < self._checked_at + CHECK_AFTER:
            return
        else:
            await self._database.call_driver(self._connection.execute("SELECT 1"))
        self._checked_at = now()

    def _disconnect(self) -> None:
        """Close the listening connection and wake all waiting callers, before this returns."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.remove_termination_listener(self._lost)
            connection.terminate()
            self._lost(connection)

    def _on_notification(self, connection: object, pid: int, channel: str, payload: object) -> None:
        for waiter in self._waiters.get(channel, ()):
            waiter.set()

    def _lost(self, connection: object) -> None:
        """Wake all waiting callers when the connection is lost, so that they check the queue and listen again."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.set()
