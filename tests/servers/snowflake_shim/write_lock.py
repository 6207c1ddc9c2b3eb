"""One lock for all writing transactions, in order of arrival: Snowflake's writers wait, where DuckDB's would fail."""

import asyncio
from collections import deque

from servers.snowflake_shim.failures import Refusal


class WriteLock:
    """Held by a session from its first change until its transaction ends. A session may take it more than once."""

    def __init__(self) -> None:
        self.holder: object | None = None
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def acquire(self, session: object, seconds: float | None) -> bool:
        """Wait up to ``seconds`` (0: not at all). Returns whether this call took the lock. Raises Refusal."""
        if self.holder is session:
            return False
        if self.holder is None and not self._waiting:
            self.holder = session
            return True
        if seconds == 0:
            raise _not_released()
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(seconds):
                await turn
        except BaseException as exc:
            if turn in self._waiting:
                self._waiting.remove(turn)
            elif turn.done() and not turn.cancelled():
                self._next()
            if isinstance(exc, TimeoutError):
                raise _not_released() from exc
            raise
        self.holder = session
        return True

    def release(self, session: object) -> None:
        if self.holder is session:
            self._next()

    def _next(self) -> None:
        self.holder = None
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                self.holder = turn  # nobody else may take it before the waiter runs
                turn.set_result(None)
                return


def _not_released() -> Refusal:
    return Refusal(625, "57014", "Another transaction has locked the rows, and this lock has not yet been released.")
