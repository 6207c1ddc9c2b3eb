"""The two cores of the PostgreSQL engine, one in C and one in Python, behind one set of words."""

from collections.abc import Sequence
from enum import IntEnum
from socket import socket
from typing import Protocol

from drumbeat.bench.driver.blocks import MessageBlock

TOO_MANY_BLOCKS = "expected fewer than two blocks to wait when one more is fed, got two"
ROOM = 1 << 17  #: records between two visits; far more than any loop can make in a budget


class ConnectionState(IntEnum):
    """Of one connection (the same numbers as in core.c)."""

    FREE = 0
    IDLE = 1
    BUSY = 2
    THINKING = 3
    DEAD = 4
    RETIRED = 5


class Core(Protocol):
    """Many connections, driven by whoever calls ``run``. Not for two threads at once, but for ``set_epoch`` and an end."""

    def add(self, index: int, connection: socket) -> None:
        """Take over a connection that is ready for queries. Raises OSError where the place is not free."""
        ...

    def retire(self, index: int) -> None:
        """Let it finish what it runs; then it is told by ``collect``."""
        ...

    def collect(self) -> Sequence[tuple[int, ConnectionState]]:
        """The connections that died or retired since the last call; their places are free from now on."""
        ...

    def feed(self, block: MessageBlock) -> None:
        """Give it messages, to be sent after those it has. Raises ValueError where two blocks wait already."""
        ...

    def blocks(self) -> int: ...

    def configure(self, limit_ns: int, think_ns: int, hottest_first: bool) -> None: ...

    def set_rate(self, per_second: float | None) -> None:
        """None: as fast as connections come free; 0: nothing becomes due. What is due stays so."""
        ...

    def forgive(self) -> None:
        """What is due and was not begun is owed no more."""
        ...

    def set_epoch(self, epoch: int) -> None: ...

    def accept(self, accepting: bool) -> None:
        """Whether operations may begin. False may be said by any thread; after True nothing is owed for the time before."""
        ...

    def run(self, budget_ns: int) -> None:
        """Send and receive for this long, or until there is nothing left to send."""
        ...

    def give_up(self) -> None:
        """Record every operation that is running as timed out; its connection is of no use any more."""
        ...

    def take(self) -> bytes:
        """The records made since the last call, as the bytes of an array of RECORD: who drives has no time for more."""
        ...

    def said(self, sqlstate: str) -> str:
        """The server's words when it first answered with this; empty where it never did."""
        ...

    @property
    def failed(self) -> int:
        """Operations that did not end well, of all so far."""
        ...

    @property
    def in_flight(self) -> int: ...

    @property
    def backlog(self) -> int:
        """Operations that are due while every connection is busy."""
        ...

    def close(self) -> None: ...
