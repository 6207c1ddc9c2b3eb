"""A cache of open connections in front of asyncpg's pool: taking one from the pool for each query would cost much more.

Prepared statements are cached too, since looking one up in asyncpg takes longer than sending it. The pool still opens and
replaces connections.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncpg
    import asyncpg.pool


class _Prepared:
    """A statement that stays prepared while this object exists. ``execute`` takes the same arguments as asyncpg's
    ``bind_execute`` (values, portal, limit, return status, timeout) and skips the checks of a pooled connection."""

    __slots__ = ("_statement", "execute")

    def __init__(self, execute: Callable[..., Awaitable[Any]], statement: object = None) -> None:
        self.execute = execute
        self._statement = statement


_NOTHING: Mapping[str, _Prepared] = {}


class ConnectionCache:
    """Lends connections to callers and keeps returned ones for reuse. After an error, or if a caller waits for the pool,
    a connection goes back to the pool instead; the pool serves waiting callers in order."""

    def __init__(
        self,
        pool: "asyncpg.Pool[Any]",
        timeout: float,
        gone: type[Exception],
        outdated: type[Exception],
        *,
        prepares: bool,
    ) -> None:
        """``gone`` is the type of asyncpg's error for a connection that the pool has taken back; ``outdated`` is the type of
        its error for a statement that was prepared before the tables changed. Without ``prepares``, statements are sent as
        text."""
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
        """Return an open idle connection, or wait for one from the pool. Raises TimeoutError."""
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
        """Close every connection; waits for connections that are in use."""
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
    """Takes a connection from the cache for an ``async with`` block, and gives it back at the end."""

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
