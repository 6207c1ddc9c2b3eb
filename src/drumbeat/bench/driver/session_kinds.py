"""What a database must offer for the general engine: sessions that run one operation at a time, of two kinds."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from drumbeat.bench.driver.records import LOST

Values = Sequence[Sequence[Any]]  #: for each statement of an operation, its values in the order of $1, $2 …


class OperationFailure(Exception):
    """An operation that did not succeed, in words every target shares."""

    def __init__(self, outcome: int, code: str, message: str, *, statement: int = 0, lost: bool | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.code = code
        self.statement = statement  #: which of the operation's statements
        self.lost = outcome == LOST if lost is None else lost  #: whether the session can no longer be used


class BlockingSession(Protocol):
    """A connection that lives in a thread of its own."""

    def execute(self, operation: int, values: Values) -> int:
        """Run an operation, in a transaction if it has several statements; answers with the rows read or changed.

        Raises Failure; the transaction is then rolled back.
        """
        ...

    def interrupt(self) -> None:
        """Make what runs now fail soon. Called from another thread."""
        ...

    def close(self) -> None: ...


class AsyncSession(Protocol):
    """A connection that many others share a thread with."""

    async def execute(self, operation: int, values: Values) -> int:
        """As ``BlockingSession.execute``."""
        ...

    def interrupt(self) -> None:
        """Break it off: what runs now fails soon, and the session is closed."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingSessions:
    """Makes sessions, each in its thread. ``connect`` raises Failure, or InvalidInput when it can never work."""

    connect: Callable[[], BlockingSession]
    keeps_limit: bool = False  #: whether the database itself gives up an operation that takes too long


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncSessions:
    """Makes sessions that share the event loop. ``connect`` raises Failure, or InvalidInput when it can never work."""

    connect: Callable[[], Awaitable[AsyncSession]]
    keeps_limit: bool = False


Sessions = BlockingSessions | AsyncSessions
