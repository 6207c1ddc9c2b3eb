"""Connections at hand: the driver's pool makes and mends them; between two uses they stay here, which saves most of a use.

So do the statements that were prepared on them: to look one up by its text, as the driver does, costs more than to send it.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncpg
    import asyncpg.pool


class _Prepared:
    """A statement that stays prepared for as long as this is kept. To execute it is what its own ``fetch`` asks of the driver's
    protocol (arguments, portal, limit, whether its status is wanted, timeout), without the checks of a borrowed connection."""

    __slots__ = ("_kept", "execute")

    def __init__(self, execute: Callable[..., Awaitable[Any]], kept: object = None) -> None:
        self.execute = execute
        self._kept = kept


_NOTHING: Mapping[str, _Prepared] = {}


class ConnectionCache:
    """Lends one connection at a time to whoever asks. One that was used in vain goes through the pool, and so does everyone
    who has to wait: the pool keeps the line."""

    def __init__(
        self,
        pool: "asyncpg.Pool[Any]",
        timeout: float,
        gone: type[Exception],
        outdated: type[Exception],
        *,
        prepares: bool,
    ) -> None:
        """``gone`` is what the driver raises for a connection that its pool has taken back, ``outdated`` for a statement that
        was prepared before the tables changed, and is refused. Without ``prepares`` every statement is sent whole."""
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
        """A connection that is open as far as is known. Raises TimeoutError."""
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
        """One statement, in a transaction of its own, on a connection that is free."""
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
        """Close every connection, each once its borrower is done with it."""
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
    """A connection for as long as a block lasts."""

    __slots__ = ("_connection", "_lending")

    def __init__(self, lending: ConnectionCache) -> None:
        self._lending = lending

    async def __aenter__(self) -> "asyncpg.pool.PoolConnectionProxy[Any]":
        self._connection = await self._lending.take()
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._lending.give_back(self._connection, sound=kind is None)
