"""The state of one connection of the generic engine (which runs load through any database driver).

``ConnectionSlot`` makes sure that each operation is recorded exactly once.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from drumbeat.bench.driver.operation_source import OperationSource
from drumbeat.bench.driver.pacing import PacingGate
from drumbeat.bench.driver.recorder import Recorder
from drumbeat.bench.driver.records import OK, TIMED_OUT
from drumbeat.bench.driver.session_kinds import OperationFailure, Values

_now = time.monotonic_ns

Turn = tuple[int, Values, int, int, int]  #: a running operation: kind, values, epoch (phase number), due time, start time


@dataclass(slots=True)
class EngineState:
    """What the connections of an engine share: pacing, operations, think time, and the number of the current phase."""

    gate: PacingGate
    source: OperationSource
    think_seconds: float
    failed: Callable[[int, OperationFailure, Values], None]  #: called for each failed operation
    epoch: int = 0


class ConnectionSlot:
    """The state of one connection, async or threaded.

    The list ``running`` contains the running operation, if any. When the operation ends, the connection tries to remove it
    from the list; at a timeout, the engine tries. Only the side that succeeds records the operation, so it is recorded once.
    """

    __slots__ = ("busy", "expired", "number", "recorder", "running", "served", "shared", "stopped", "timeout", "wanted")

    def __init__(self, number: int, shared: EngineState, recorder: Recorder) -> None:
        self.number = number
        self.shared = shared
        self.recorder = recorder
        self.running: list[Turn] = []
        self.busy = False  #: true from before an operation begins until after it is recorded
        self.expired: Turn | None = None  #: the operation that took too long and was interrupted
        self.timeout: asyncio.Timeout | None = None  #: the timeout of the engine's current wait for this connection
        self.wanted = True
        self.stopped = asyncio.Event()
        self.served = False  #: whether an operation has succeeded since it connected

    def begin(self, due: int) -> Turn | None:
        """Start the next operation and its clock. Returns None if the engine does not accept new operations.

        Sets ``busy`` before it checks the pacing gate; the engine closes the gate before it checks ``busy``. So if the
        engine has closed the gate and finds no connection busy, no operation will begin and all results are recorded.
        """
        shared = self.shared
        kind, values = drawn = shared.source.next()
        self.busy = True
        if not shared.gate.accepting:
            shared.source.put_back(drawn)
            self.busy = False
            return None
        start = _now()
        turn = (kind, values, shared.epoch, due or start, start)
        self.running.append(turn)
        return turn

    def succeeded(self, turn: Turn, rows: int) -> None:
        end = _now()
        self.served = True
        if self._take_running():
            kind, _, epoch, due, start = turn
            self.recorder.add(due, start, end - start, self.number, rows, kind, OK, epoch, b"")
        self.busy = False

    def failed(self, turn: Turn, failure: OperationFailure) -> None:
        end = _now()
        if turn is self.expired:
            failure.outcome = TIMED_OUT
        if self._take_running():
            kind, values, epoch, due, start = turn
            code = failure.code.encode()
            self.recorder.add(due, start, end - start, self.number, 0, kind, failure.outcome, epoch, code)
            self.shared.failed(kind, failure, values)
        self.busy = False

    def give_up(self, turn: Turn, recorder: Recorder, reason: str) -> bool:
        """Record an operation as timed out, in the caller's recorder. Returns False if the operation had ended already.

        In both cases the connection begins no more operations, because the engine might never read their records.
        """
        self.wanted = False
        try:
            self.running.remove(turn)
        except ValueError:
            return False
        kind, values, epoch, due, start = turn
        recorder.add(due, start, _now() - start, self.number, 0, kind, TIMED_OUT, epoch, b"")
        self.shared.failed(kind, OperationFailure(TIMED_OUT, "", reason), values)
        self.busy = False
        return True

    def stop(self) -> None:
        self.wanted = False
        self.stopped.set()

    async def rest(self, seconds: float) -> None:
        """Sleep, but wake up early when the connection is stopped."""
        await sleep_unless_set(self.stopped, seconds)

    @asynccontextmanager
    async def within(self, seconds: float | None) -> AsyncIterator[None]:
        """Raise TimeoutError if the ``async with`` block takes longer than ``seconds``, or when ``end_wait`` is called."""
        async with asyncio.timeout(seconds) as self.timeout:
            try:
                yield
            finally:
                self.timeout = None

    def end_wait(self, after: float = 0.0) -> None:
        """Make the current ``within`` block raise TimeoutError ``after`` seconds from now. If there is none, does nothing."""
        if self.timeout is not None:
            self.timeout.reschedule(asyncio.get_running_loop().time() + after)

    def _take_running(self) -> bool:
        try:
            self.running.pop()
        except IndexError:
            return False
        return True


class DriverConnection(Protocol):
    """A connection to the database under test; hides whether its database driver is async or blocking."""

    @property
    def slot(self) -> ConnectionSlot: ...

    @property
    def is_connecting(self) -> bool:
        """Whether the connection is not established yet."""
        ...

    async def connect(self) -> None:
        """Open a session. Raises OperationFailure, or InvalidInput if a retry cannot help."""
        ...

    async def drive(self) -> None:
        """Run operations until the connection is stopped or its session is lost."""
        ...

    async def close(self) -> None: ...

    def discard(self) -> None:
        """Close the connection without waiting for an answer, because it does not respond."""
        ...

    def interrupt(self) -> None:
        """Make the running operation fail soon, because it takes too long."""
        ...

    def stop(self) -> None:
        """Begin no more operations; the running operation can still finish."""
        ...


async def sleep_unless_set(until: asyncio.Event, seconds: float) -> None:
    """Sleep, but wake up early when the event is set."""
    try:
        async with asyncio.timeout(seconds):
            await until.wait()
    except TimeoutError:
        return
