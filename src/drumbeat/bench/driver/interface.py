"""The interface of every engine: hold connections, keep them busy, record every operation."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from drumbeat.bench.driver.records import Records
from drumbeat.bench.model import ErrorClass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How operations are issued."""

    limit: timedelta = timedelta(seconds=30)  #: an operation that takes longer counts as timed out
    parallel_connects: int = 32
    connect_limit: timedelta = timedelta(seconds=30)
    most_connections: int = 1000
    cached_results: bool = True  #: whether the server may use its query cache, if it has one
    hottest_first: bool = False  #: open loop: use the connection that became free last, not the one idle longest


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSample:
    """One failed operation as an example of its class: SQL, never parameters."""

    kind: str
    error_class: ErrorClass
    sqlstate: str
    message: str
    sql: str


class Engine(Protocol):
    """One worker's connections to the database under test.

    Operations are sent as fast as connections become free (closed loop) or at a fixed rate (open loop). Each is recorded once,
    also when it fails. A lost connection is replaced with backoff. The engine never waits for the reader of its records.
    """

    async def open(self) -> None:
        """Open one connection, so that a wrong address, password or statement is found before the load begins.

        Raises InvalidInput or InvalidSettings with the cause.
        """
        ...

    def set_target(self, connections: int) -> None:
        """Hold this many connections from now on. Opens missing ones; surplus ones finish their operation and are closed."""
        ...

    def set_rate(self, per_second: float | None) -> None:
        """Send this many operations a second from now on, however slow the database is; 0: none; None: as fast as possible.

        Operations that are due and wait for a connection keep their due times until they are sent or dropped by ``forgive``.
        """
        ...

    def forgive(self) -> None:
        """Open loop: drop the operations that are due and wait for a connection; the rate stays."""
        ...

    def set_epoch(self, epoch: int) -> None:
        """Mark operations that begin from now on, to tell the operations of one phase from those of another."""
        ...

    def accept(self, accepting: bool) -> None:
        """Allow or stop new operations."""
        ...

    def take(self) -> Records:
        """The records of operations that ended since the last call, each once."""
        ...

    @property
    def held(self) -> int:
        """Connections that are open."""
        ...

    @property
    def in_flight(self) -> int:
        """Operations that are running."""
        ...

    @property
    def backlog(self) -> int:
        """Open loop: operations that are due and wait for a connection."""
        ...

    @property
    def failed_connects(self) -> int: ...

    @property
    def error_samples(self) -> Sequence[ErrorSample]:
        """The first few failures of each class."""
        ...

    @property
    def driving_thread(self) -> int | None:
        """The thread that sends operations, if there is a single one; if it is always busy, it limits the load."""
        ...

    @property
    def failure(self) -> Exception | None:
        """The error that stopped the engine, if any."""
        ...

    async def drain(self, within: timedelta) -> int:
        """Stop new operations and let running ones finish. Returns how many were still running at the limit and given up."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...
