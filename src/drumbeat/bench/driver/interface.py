"""What every engine promises: hold connections, keep them busy, record every operation."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from drumbeat.bench.driver.records import Records
from drumbeat.bench.model import ErrorClass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How operations are issued."""

    limit: timedelta = timedelta(seconds=30)  #: an operation that takes longer is given up
    parallel_connects: int = 32
    connect_limit: timedelta = timedelta(seconds=30)
    most_connections: int = 1000
    cached_results: bool = True  #: whether the server may answer from its query cache, where it has one
    hottest_first: bool = False  #: open loop: the connection that came free last, instead of the one that has waited longest


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

    Operations are issued as fast as connections come free (closed loop), or at a rate of their own (open loop), each recorded
    once, whatever became of it. A lost connection is replaced with backoff. None of this ever waits for whoever reads records.
    """

    async def open(self) -> None:
        """Get ready; one connection is made, so that a wrong address, password or statement is known before load begins.

        Raises InvalidInput or InvalidSettings, naming what is wrong.
        """
        ...

    def set_target(self, connections: int) -> None:
        """Hold this many from now on: more are opened, too many let their operation finish and are closed."""
        ...

    def set_rate(self, per_second: float | None) -> None:
        """Issue this many operations a second from now on, whatever the database does; 0: none; None: as fast as possible.

        What was due before and had no connection stays due, from when it was, until it is sent or forgiven.
        """
        ...

    def forgive(self) -> None:
        """Open loop: what is due and waits for a connection is owed no more; the rate goes on."""
        ...

    def set_epoch(self, epoch: int) -> None:
        """Mark operations that begin from now on; how a phase's operations are told from the one before."""
        ...

    def accept(self, accepting: bool) -> None:
        """Whether new operations may begin."""
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
        """The thread that issues operations, where there is one; if it is always busy, it limits the load."""
        ...

    @property
    def failure(self) -> Exception | None:
        """What made going on impossible, if something did."""
        ...

    async def drain(self, within: timedelta) -> int:
        """Begin nothing new, let what runs finish. Answers with how many operations were cut off at the limit."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...
