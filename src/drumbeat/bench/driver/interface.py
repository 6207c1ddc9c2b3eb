"""The interface of an engine, which runs a load: it opens connections, sends operations and records each of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from drumbeat.bench.driver.records import Records
from drumbeat.bench.model import ErrorClass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Timeouts, limits and options of a load engine, which opens connections and sends operations to the database."""

    limit: timedelta = timedelta(seconds=30)  #: the timeout of one operation
    parallel_connects: int = 32
    connect_limit: timedelta = timedelta(seconds=30)
    most_connections: int = 1000
    cached_results: bool | None = None  #: whether the server may use its query cache, if any; None: as the server is configured
    tag: str = ""  #: RUN:WORKER, for servers that keep a tag with each statement
    hottest_first: bool = False  #: open loop: send on the connection that was used last, not on the one idle longest


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSample:
    """One failed operation, as an example of its error class. Contains the SQL but never parameter values."""

    kind: str
    error_class: ErrorClass
    sqlstate: str
    message: str
    sql: str


class Engine(Protocol):
    """Runs one worker's load: opens connections to the database under test and sends operations.

    Operations are sent as fast as connections become free (closed loop) or at a fixed rate (open loop). Each is recorded once,
    also when it fails. A lost connection is replaced with backoff. The engine never waits for the reader of its records.
    """

    async def open(self) -> None:
        """Start the engine if a first connection succeeds. Raises InvalidInput or InvalidSettings if it fails."""
        ...

    def set_target(self, connections: int) -> None:
        """Keep this many connections open. Opens missing ones; surplus ones finish their operation and are closed."""
        ...

    def set_rate(self, per_second: float | None) -> None:
        """Send this many operations per second, however slow the database is; 0: none; None: as fast as possible.

        An operation that waits for a free connection keeps its due time, until it is sent or dropped by ``drop_overdue``.
        """
        ...

    def drop_overdue(self) -> None:
        """Open loop: drop the operations that are overdue because no connection was free. The rate does not change."""
        ...

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch (0 to 255) for operations that begin from now on. Their records contain it, to tell phases apart."""
        ...

    def accept(self, accepting: bool) -> None:
        """Allow new operations to begin, or stop them. Running operations continue."""
        ...

    def take(self) -> Records:
        """Return the records of the operations that ended since the last call."""
        ...

    @property
    def open_connections(self) -> int:
        """How many connections are open."""
        ...

    @property
    def in_flight(self) -> int:
        """How many operations are running."""
        ...

    @property
    def backlog(self) -> int:
        """Open loop: how many operations are due but wait for a free connection."""
        ...

    @property
    def failed_connects(self) -> int: ...

    @property
    def error_samples(self) -> Sequence[ErrorSample]:
        """The first few failed operations of each error class."""
        ...

    @property
    def driving_thread(self) -> int | None:
        """The id of the thread that sends all operations; None if several do. If it is always busy, it limits the load."""
        ...

    @property
    def failure(self) -> Exception | None:
        """The error that stopped the engine, if any."""
        ...

    async def drain(self, within: timedelta) -> int:
        """Stop new operations and wait for running ones. Returns how many still ran after ``within`` and were abandoned."""
        ...

    async def close(self) -> None:
        """Close every connection and end all threads and tasks."""
        ...
