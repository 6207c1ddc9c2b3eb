"""The interface of the PostgreSQL engine's core, the loop that sends and receives. There is one core in C and one in Python."""

from collections.abc import Sequence
from enum import IntEnum
from socket import socket
from typing import Protocol

from drumbeat.bench.driver.blocks import MessageBlock

TOO_MANY_BLOCKS = "expected at most one queued block before another is added, got two"
ROOM = 1 << 17  #: how many records fit in memory until ``take``; far more than one ``run`` makes


class ConnectionState(IntEnum):
    """The state of one connection; core.c uses the same numbers."""

    FREE = 0
    IDLE = 1
    BUSY = 2
    THINKING = 3
    DEAD = 4
    RETIRED = 5


class Core(Protocol):
    """Drives many connections in one thread. Other threads are allowed to call only ``set_epoch`` and ``accept(False)``."""

    def add(self, index: int, connection: socket) -> None:
        """Take over a connection that is ready for queries; its number is ``index``. Raises OSError if the number is in use."""
        ...

    def retire(self, index: int) -> None:
        """Let a connection finish its operation and begin no other; ``collect`` then reports it as retired."""
        ...

    def collect(self) -> Sequence[tuple[int, ConnectionState]]:
        """Return the connections that died or retired since the last call. Their numbers can be used again."""
        ...

    def feed(self, block: MessageBlock) -> None:
        """Queue a block of messages to be sent. Raises ValueError if two blocks are queued already."""
        ...

    def blocks(self) -> int: ...

    def configure(self, limit_ns: int, think_ns: int, hottest_first: bool) -> None: ...

    def set_rate(self, per_second: float | None) -> None:
        """Set how many operations become due per second; None: send whenever a connection is free, without due times."""
        ...

    def drop_overdue(self) -> None:
        """Drop the operations that are due but were not sent yet."""
        ...

    def set_epoch(self, epoch: int) -> None: ...

    def accept(self, accepting: bool) -> None:
        """Allow or stop new operations. Operations that become due while they are stopped are never sent. Any thread can call
        ``accept(False)``."""
        ...

    def run(self, budget_ns: int) -> None:
        """Send and receive for up to ``budget_ns`` nanoseconds; returns earlier if there are no messages left to send."""
        ...

    def give_up(self) -> None:
        """Record every running operation as timed out and drop its connection."""
        ...

    def take(self) -> bytes:
        """Return the records since the last call, as the bytes of a RECORD array. They are not parsed here, because that would
        delay the driving thread."""
        ...

    def error_message(self, sqlstate: str) -> str:
        """Return the first error message that the server sent with this SQLSTATE; empty if it sent none."""
        ...

    @property
    def failed(self) -> int:
        """How many operations have failed so far."""
        ...

    @property
    def in_flight(self) -> int: ...

    @property
    def backlog(self) -> int:
        """How many operations are due but cannot be sent, because every connection is busy."""
        ...

    def close(self) -> None: ...
