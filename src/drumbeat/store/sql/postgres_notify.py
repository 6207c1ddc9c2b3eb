"""LISTEN and NOTIFY: a channel for each pool, one connection that listens for a whole store, and not a word too many."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, Protocol

from drumbeat.core.errors import DrumbeatError
from drumbeat.core.pool import PoolId
from drumbeat.store.sql.database import Rows, Values
from drumbeat.store.sql.queue import Subscription

log = logging.getLogger(__name__)

QUIET = 0.005  #: seconds between two notifications of one process about one pool


@lru_cache(maxsize=1024)
def channel_of(schema: str, pool_id: PoolId) -> str:
    """A pool's channel: a name short enough, whatever the pool is called."""
    return f"drumbeat_{hashlib.blake2s(f'{schema}/{pool_id}'.encode(), digest_size=12).hexdigest()}"


class NotifyDatabase(Protocol):
    """What a bell needs of its database."""

    async def listener(self) -> Any: ...

    async def write(self, query: str, values: Values) -> Rows: ...


class PostgresNotify:
    """Who waits for which pool, and when each was last told."""

    def __init__(self, lines: NotifyDatabase, schema: str) -> None:
        self._lines = lines
        self._schema = schema
        self._connection: Any = None
        self._opening = asyncio.Lock()
        self._channels: set[str] = set()
        self._ears: dict[str, set[asyncio.Event]] = {}
        self._next: dict[str, float] = {}
        self._later: dict[str, asyncio.TimerHandle] = {}
        self._sending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, pool_id: PoolId) -> AsyncIterator[Subscription]:
        channel, heard = channel_of(self._schema, pool_id), asyncio.Event()
        self._ears.setdefault(channel, set()).add(heard)
        try:
            yield Subscription(heard, await self._listen(channel))
        finally:
            self._ears[channel].discard(heard)

    def word(self, pool_id: PoolId) -> str | None:
        """The channel to notify within a statement; None if it was told a moment ago and will be again: by the first statement
        after that moment, or on its own where none comes."""
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

    def unsaid(self, channel: str | None) -> None:
        """What was to be said within a statement was not, for it failed; others may have relied on it."""
        if channel is not None and channel not in self._later:
            self._later[channel] = asyncio.get_running_loop().call_later(QUIET, self._send_later, channel)

    async def ring(self, pool_id: PoolId) -> None:
        channel = self.word(pool_id)
        if channel is not None:
            await self._lines.write("notify", {"channel": channel})

    async def close(self) -> None:
        for channel, later in [*self._later.items()]:
            later.cancel()
            self._send_later(channel)
        await asyncio.gather(*self._sending)
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def _send_later(self, channel: str) -> None:
        self._later.pop(channel, None)
        loop = asyncio.get_running_loop()
        self._next[channel] = loop.time() + QUIET
        task = loop.create_task(self._send(channel))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, channel: str) -> None:
        try:
            await self._lines.write("notify", {"channel": channel})
        except DrumbeatError as exc:
            log.warning("could not tell of new jobs, whoever waits will look: %s", exc)

    async def _listen(self, channel: str) -> bool:
        """Have the channel listened to. False where nothing can be heard."""
        async with self._opening:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._lines.listener()
                self._channels.clear()
                if self._connection is not None:
                    self._connection.add_termination_listener(self._lost)
            if self._connection is None:
                return False
            if channel not in self._channels:
                await self._connection.add_listener(channel, self._hear)
                self._channels.add(channel)
            return True

    def _hear(self, connection: object, pid: int, channel: str, payload: object) -> None:
        for ear in self._ears.get(channel, ()):
            ear.set()

    def _lost(self, connection: object) -> None:
        """Whoever waits looks for itself, and listens anew."""
        for ears in self._ears.values():
            for ear in ears:
                ear.set()
