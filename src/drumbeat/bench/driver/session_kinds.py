"""Interfaces of the sessions through which the generic engine runs load on any database: blocking or async.

A session runs one operation at a time.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from drumbeat.bench.driver.records import LOST

Values = Sequence[Sequence[Any]]  #: the values for $1, $2 … of each statement of an operation


class OperationFailure(Exception):
    """A failed operation or connection attempt: its outcome, and the database's error code and message."""

    def __init__(self, outcome: int, code: str, message: str, *, statement: int = 0, lost: bool | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.code = code
        self.statement = statement  #: the index of the failed statement in the operation
        self.lost = outcome == LOST if lost is None else lost  #: whether the session can no longer be used


class BlockingSession(Protocol):
    """A connection with a blocking driver: one thread runs its operations and waits until each has ended."""

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
    """A connection with an async driver; many share the event loop's thread."""

    async def execute(self, operation: int, values: Values) -> int:
        """Run an operation in the same way as ``BlockingSession.execute``."""
        ...

    def interrupt(self) -> None:
        """Make the running operation fail soon, and close the session."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingSessions:
    """Opens blocking sessions. ``connect`` raises OperationFailure, or InvalidInput if a retry cannot help."""

    connect: Callable[[], BlockingSession]
    enforces_timeout: bool = False  #: whether the database enforces the timeout of operations itself


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncSessions:
    """Opens async sessions. ``connect`` raises OperationFailure, or InvalidInput if a retry cannot help."""

    connect: Callable[[], Awaitable[AsyncSession]]
    enforces_timeout: bool = False


Sessions = BlockingSessions | AsyncSessions
