"""A cache of connections in front of the driver's pool: keeping a connection between uses saves most of the cost of a use.

Prepared statements are cached too, since looking one up in the driver costs more than sending it. The driver's pool opens
and replaces connections.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncpg
    import asyncpg.pool


class _Prepared:
    """A statement that stays prepared as long as this object lives. ``execute`` calls the driver's protocol as the statement's
    ``fetch`` does (arguments, portal, limit, return status, timeout), without the checks of a pooled connection."""

    __slots__ = ("_statement", "execute")

    def __init__(self, execute: Callable[..., Awaitable[Any]], statement: object = None) -> None:
        self.execute = execute
        self._statement = statement


_NOTHING: Mapping[str, _Prepared] = {}


class ConnectionCache:
    """Lends a connection to each caller. A connection whose use failed goes back to the pool, and callers that have to wait
    wait in the pool, which serves them in order."""

    def __init__(
        self,
        pool: "asyncpg.Pool[Any]",
        timeout: float,
        gone: type[Exception],
        outdated: type[Exception],
        *,
        prepares: bool,
    ) -> None:
        """``gone`` is the driver's error for a connection that its pool has taken back, ``outdated`` for a statement that was
        prepared before the tables changed. Without ``prepares`` every statement is sent as text."""
        self._pool = pool
        self._timeout = timeout
        self._gone = gone
        self._outdated = outdated
        self._prepares = prepares
        self._idle: list[asyncpg.pool.PoolConnectionProxy[Any]] = []
        self._prepared: dict[object, dict[str, _Prepared]] = {}
        self._waiting = 0
        self._closing = False

    def borrowed(self) -> "Borrowed":
        return Borrowed(self)

    async def take(self) -> "asyncpg.pool.PoolConnectionProxy[Any]":
        """A connection that is not known to be closed. Raises TimeoutError."""
        while self._idle:
            connection = self._idle.pop()
            if self._is_open(connection):
                return connection
            await self._release(connection)
        self._waiting += 1
        try:
            return await self._pool.acquire(timeout=self._timeout)
        finally:
            self._waiting -= 1

    async def run(self, text: str, arguments: tuple[Any, ...]) -> "list[asyncpg.Record]":
        """Run one statement in its own transaction on a free connection."""
        connection, sound = await self.take(), False
        try:
            prepared = self._prepared.get(connection, _NOTHING).get(text) or await self._prepare(connection, text)
            rows: list[asyncpg.Record] = await prepared.execute(arguments, "", 0, False, None)
            sound = True
        except self._outdated:
            self._prepared.pop(connection, None)
            rows = await connection.fetch(text, *arguments)
            sound = True
        finally:
            await self.give_back(connection, sound=sound)
        return rows

    async def _prepare(self, connection: "asyncpg.pool.PoolConnectionProxy[Any]", text: str) -> "_Prepared":
        if not self._prepares:
            return _Prepared(lambda arguments, *_: connection.fetch(text, *arguments))
        statement: Any = await connection.prepare(text)
        execute = partial(statement._connection._protocol.bind_execute, statement._state)  # noqa: SLF001
        made = self._prepared.setdefault(connection, {})[text] = _Prepared(execute, statement)
        return made

    async def give_back(self, connection: "asyncpg.pool.PoolConnectionProxy[Any]", *, sound: bool) -> None:
        if sound and not self._waiting and not self._closing:
            self._idle.append(connection)
        else:
            await self._release(connection)

    async def close(self) -> None:
        """Close every connection, as soon as it is no longer used."""
        self._closing = True
        while self._idle:
            await self._release(self._idle.pop())
        await self._pool.close()

    def terminate(self) -> None:
        self._pool.terminate()

    async def _release(self, connection: "asyncpg.pool.PoolConnectionProxy[Any]") -> None:
        self._prepared.pop(connection, None)
        await self._pool.release(connection)

    def _is_open(self, connection: "asyncpg.pool.PoolConnectionProxy[Any]") -> bool:
        try:
            return not connection.is_closed()
        except self._gone:
            return False


class Borrowed:
    """Lends a connection for an ``async with`` block."""

    __slots__ = ("_cache", "_connection")

    def __init__(self, cache: ConnectionCache) -> None:
        self._cache = cache

    async def __aenter__(self) -> "asyncpg.pool.PoolConnectionProxy[Any]":
        self._connection = await self._cache.take()
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._cache.give_back(self._connection, sound=kind is None)
