"""What a database provides for the generic engine: blocking or async sessions that run one operation at a time."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from drumbeat.bench.driver.records import LOST

Values = Sequence[Sequence[Any]]  #: for each statement of an operation, its values for $1, $2 …


class OperationFailure(Exception):
    """A failed operation, described in the same way for every target."""

    def __init__(self, outcome: int, code: str, message: str, *, statement: int = 0, lost: bool | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.code = code
        self.statement = statement  #: which of the operation's statements
        self.lost = outcome == LOST if lost is None else lost  #: whether the session can no longer be used


class BlockingSession(Protocol):
    """A connection used by one thread."""

    def execute(self, operation: int, values: Values) -> int:
        """Run an operation, in a transaction if it has several statements; returns the number of rows read or changed.

        Raises OperationFailure; the transaction is then rolled back.
        """
        ...

    def interrupt(self) -> None:
        """Make the running operation fail soon. Called from another thread."""
        ...

    def close(self) -> None: ...


class AsyncSession(Protocol):
    """A connection that shares the event loop's thread with others."""

    async def execute(self, operation: int, values: Values) -> int:
        """Like ``BlockingSession.execute``."""
        ...

    def interrupt(self) -> None:
        """Make the running operation fail soon, and close the session."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingSessions:
    """Opens sessions, each in its own thread. ``connect`` raises OperationFailure, or InvalidInput if a retry cannot help."""

    connect: Callable[[], BlockingSession]
    keeps_limit: bool = False  #: whether the database enforces the timeout of operations itself


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncSessions:
    """Opens sessions in the event loop. ``connect`` raises OperationFailure, or InvalidInput if a retry cannot help."""

    connect: Callable[[], Awaitable[AsyncSession]]
    keeps_limit: bool = False


Sessions = BlockingSessions | AsyncSessions
