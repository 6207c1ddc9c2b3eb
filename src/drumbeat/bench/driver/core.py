"""The interface of the PostgreSQL engine's two cores, one in C and one in Python."""

from collections.abc import Sequence
from enum import IntEnum
from socket import socket
from typing import Protocol

from drumbeat.bench.driver.blocks import MessageBlock

TOO_MANY_BLOCKS = "expected fewer than two blocks to be queued before feeding another, got two"
ROOM = 1 << 17  #: records that fit between two calls of ``take``; far more than one ``run`` can produce


class ConnectionState(IntEnum):
    """The state of one connection (same numbers as in core.c)."""

    FREE = 0
    IDLE = 1
    BUSY = 2
    THINKING = 3
    DEAD = 4
    RETIRED = 5


class Core(Protocol):
    """Many connections, driven by one thread that calls ``run``; others may call only ``set_epoch`` and ``accept(False)``."""

    def add(self, index: int, connection: socket) -> None:
        """Take over a connection that is ready for queries. Raises OSError if the slot is not free."""
        ...

    def retire(self, index: int) -> None:
        """Let the connection finish its operation; ``collect`` reports it afterwards."""
        ...

    def collect(self) -> Sequence[tuple[int, ConnectionState]]:
        """The connections that died or retired since the last call; their slots are free from now on."""
        ...

    def feed(self, block: MessageBlock) -> None:
        """Queue messages to be sent. Raises ValueError if two blocks are queued already."""
        ...

    def blocks(self) -> int: ...

    def configure(self, limit_ns: int, think_ns: int, hottest_first: bool) -> None: ...

    def set_rate(self, per_second: float | None) -> None:
        """None: as fast as connections become free; 0: nothing becomes due. Operations that are due stay due."""
        ...

    def forgive(self) -> None:
        """Drop the operations that are due and have not begun."""
        ...

    def set_epoch(self, epoch: int) -> None: ...

    def accept(self, accepting: bool) -> None:
        """Allow or stop new operations; any thread may stop them. Operations due while they were stopped are never sent."""
        ...

    def run(self, budget_ns: int) -> None:
        """Send and receive for this long, or until there are no messages left to send."""
        ...

    def give_up(self) -> None:
        """Record every running operation as timed out and drop its connection."""
        ...

    def take(self) -> bytes:
        """The records since the last call as the bytes of a RECORD array; parsing them here would delay the driving thread."""
        ...

    def error_message(self, sqlstate: str) -> str:
        """The server's message when it first answered with this SQLSTATE; empty if it never did."""
        ...

    @property
    def failed(self) -> int:
        """How many operations have failed so far."""
        ...

    @property
    def in_flight(self) -> int: ...

    @property
    def backlog(self) -> int:
        """Operations that are due while every connection is busy."""
        ...

    def close(self) -> None: ...
