"""A connection's place in the general engine: what it runs, and that each operation is recorded once."""

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

Turn = tuple[int, Values, int, int, int]  #: an operation that runs: kind, values, epoch, due, start


@dataclass(slots=True)
class Shared:
    """What all connections of an engine have in common."""

    gate: PacingGate
    supply: OperationSource
    think_seconds: float
    failed: Callable[[int, OperationFailure, Values], None]  #: told of each operation that failed
    epoch: int = 0


class ConnectionSlot:
    """What there is to know of a connection, whoever runs it.

    ``running`` holds the operation that runs, or nothing. Whoever takes it out, records it: the connection itself, or the
    engine when it gives the operation up. So each is recorded once, though they may be in different threads.
    """

    __slots__ = ("busy", "expired", "number", "recorder", "running", "scope", "served", "shared", "stopped", "wanted")

    def __init__(self, number: int, shared: Shared, recorder: Recorder) -> None:
        self.number = number
        self.shared = shared
        self.recorder = recorder
        self.running: list[Turn] = []
        self.busy = False  #: from before an operation begins until after it is recorded
        self.expired: Turn | None = None  #: the operation that took too long and was interrupted
        self.scope: asyncio.Timeout | None = None  #: how long the engine waits for this connection
        self.wanted = True
        self.stopped = asyncio.Event()
        self.served = False  #: whether it has done anything since it connected

    def begin(self, due: int) -> Turn | None:
        """The next operation, its clock running; None when the gate was closed meanwhile.

        It is seen to be busy before the gate is asked, and the gate is closed before anybody looks who is busy: so who has
        closed it and sees nobody busy can be sure that nothing will begin, and that all that ended is recorded.
        """
        shared = self.shared
        kind, values = drawn = shared.supply.next()
        self.busy = True
        if not shared.gate.accepting:
            shared.supply.put_back(drawn)
            self.busy = False
            return None
        start = _now()
        turn = (kind, values, shared.epoch, due or start, start)
        self.running.append(turn)
        return turn

    def succeeded(self, turn: Turn, rows: int) -> None:
        end = _now()
        self.served = True
        if self._is_mine():
            kind, _, epoch, due, start = turn
            self.recorder.add(due, start, end - start, self.number, rows, kind, OK, epoch, b"")
        self.busy = False

    def failed(self, turn: Turn, failure: OperationFailure) -> None:
        end = _now()
        if turn is self.expired:
            failure.outcome = TIMED_OUT
        if self._is_mine():
            kind, values, epoch, due, start = turn
            code = failure.code.encode()
            self.recorder.add(due, start, end - start, self.number, 0, kind, failure.outcome, epoch, code)
            self.shared.failed(kind, failure, values)
        self.busy = False

    def give_up(self, turn: Turn, recorder: Recorder, why: str) -> bool:
        """Record an operation as timed out, for whoever writes to this recorder; answers whether it was still running.

        The connection is no longer wanted, whichever: it must begin nothing that nobody would see the end of.
        """
        self.wanted = False
        try:
            self.running.remove(turn)
        except ValueError:
            return False
        kind, values, epoch, due, start = turn
        recorder.add(due, start, _now() - start, self.number, 0, kind, TIMED_OUT, epoch, b"")
        self.shared.failed(kind, OperationFailure(TIMED_OUT, "", why), values)
        self.busy = False
        return True

    def stop(self) -> None:
        self.wanted = False
        self.stopped.set()

    async def rest(self, seconds: float) -> None:
        """Wait, unless it is stopped."""
        await rest(self.stopped, seconds)

    @asynccontextmanager
    async def within(self, seconds: float | None) -> AsyncIterator[None]:
        """Raises TimeoutError when that takes longer, or when it is ``cut``."""
        async with asyncio.timeout(seconds) as self.scope:
            try:
                yield
            finally:
                self.scope = None

    def cut(self, after: float = 0.0) -> None:
        """Wait no longer than this for what the engine waits for here."""
        if self.scope is not None:
            self.scope.reschedule(asyncio.get_running_loop().time() + after)

    def _is_mine(self) -> bool:
        try:
            self.running.pop()
        except IndexError:
            return False
        return True


class DriverConnection(Protocol):
    """A connection, however its driver wants to be called."""

    @property
    def place(self) -> ConnectionSlot: ...

    @property
    def is_connecting(self) -> bool:
        """Whether it has no session yet."""
        ...

    async def connect(self) -> None:
        """Raises Failure, or InvalidInput when it can never work."""
        ...

    async def drive(self) -> None:
        """Run operations until the connection is no longer wanted or its session is lost."""
        ...

    async def close(self) -> None: ...

    def discard(self) -> None:
        """Close it without waiting: it does not answer."""
        ...

    def interrupt(self) -> None:
        """Make the operation that runs now fail soon."""
        ...

    def stop(self) -> None:
        """No longer wanted: let what runs finish, begin nothing more."""
        ...


async def rest(until: asyncio.Event, seconds: float) -> None:
    """Wait, but not beyond an event."""
    try:
        async with asyncio.timeout(seconds):
            await until.wait()
    except TimeoutError:
        return
