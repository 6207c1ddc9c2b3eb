"""Connections at hand: the driver's pool makes and mends them; between two uses they stay here, which saves most of a use."""

from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncpg
    import asyncpg.pool


class Lending:
    """Lends one connection at a time to whoever asks. One that was used in vain goes through the pool, and so does everyone
    who has to wait: the pool keeps the line."""

    def __init__(self, pool: "asyncpg.Pool[Any]", timeout: float, gone: type[Exception]) -> None:
        """``gone`` is what the driver raises for a connection that its pool has taken back."""
        self._pool = pool
        self._timeout = timeout
        self._gone = gone
        self._idle: list[asyncpg.pool.PoolConnectionProxy[Any]] = []
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
            await self._pool.release(connection)
        self._waiting += 1
        try:
            return await self._pool.acquire(timeout=self._timeout)
        finally:
            self._waiting -= 1

    async def give_back(self, connection: "asyncpg.pool.PoolConnectionProxy[Any]", *, sound: bool) -> None:
        if sound and not self._waiting and not self._closing:
            self._idle.append(connection)
        else:
            await self._pool.release(connection)

    async def close(self) -> None:
        """Close every connection, each once its borrower is done with it."""
        self._closing = True
        while self._idle:
            await self._pool.release(self._idle.pop())
        await self._pool.close()

    def terminate(self) -> None:
        self._pool.terminate()

    def _is_open(self, connection: "asyncpg.pool.PoolConnectionProxy[Any]") -> bool:
        try:
            return not connection.is_closed()
        except self._gone:
            return False


class Borrowed:
    """A connection for as long as a block lasts."""

    __slots__ = ("_connection", "_lending")

    def __init__(self, lending: Lending) -> None:
        self._lending = lending

    async def __aenter__(self) -> "asyncpg.pool.PoolConnectionProxy[Any]":
        self._connection = await self._lending.take()
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._lending.give_back(self._connection, sound=kind is None)
