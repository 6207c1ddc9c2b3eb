"""One connection of the general engine: takes its turn, runs an operation, records it, and begins again."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Protocol

from drumbeat.bench.driver.lanes import Lane
from drumbeat.bench.driver.pacing import AT_ONCE, STOP, Gate
from drumbeat.bench.driver.recorder import Recorder
from drumbeat.bench.driver.records import FAILED, OK, TIMED_OUT
from drumbeat.bench.driver.session_kinds import AsyncSession, AsyncSessions, BlockingSession, BlockingSessions, Failure, Values
from drumbeat.bench.driver.supply import Supply

log = logging.getLogger(__name__)

_now = time.monotonic_ns
_CLOSE_SECONDS = 1.0

Turn = tuple[int, Values, int, int, int]  #: an operation that runs: kind, values, epoch, due, start


@dataclass(slots=True)
class Shared:
    """What all connections of an engine have in common."""

    gate: Gate
    supply: Supply
    think_seconds: float
    failed: Callable[[int, Failure, Values], None]  #: told of each operation that failed
    epoch: int = 0


class Place:
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

    def failed(self, turn: Turn, failure: Failure) -> None:
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
        self.shared.failed(kind, Failure(TIMED_OUT, "", why), values)
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


class Connection(Protocol):
    """A connection, however its driver wants to be called."""

    @property
    def place(self) -> Place: ...

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


class AsyncConnection:
    """One of many in the event loop's thread."""

    def __init__(self, place: Place, sessions: AsyncSessions) -> None:
        self.place = place
        self._sessions = sessions
        self._session: AsyncSession | None = None
        self._woken: asyncio.Future[int] | None = None

    @property
    def is_connecting(self) -> bool:
        return self._session is None

    async def connect(self) -> None:
        self._session = await self._sessions.connect()

    async def drive(self) -> None:
        if self._session is None:
            return
        place, shared, execute = self.place, self.place.shared, self._session.execute
        while place.wanted:
            due = AT_ONCE if shared.gate.free else await self._due()
            if due == STOP or (turn := place.begin(due)) is None:
                continue
            try:
                rows = await execute(turn[0], turn[1])
            except Exception as error:
                place.failed(turn, failure := _failure(error))
                if failure.lost:
                    return
            else:
                place.succeeded(turn, rows)
            if shared.think_seconds and shared.gate.free:
                await place.rest(shared.think_seconds)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await session.close()
            except Exception as error:
                log.info("a connection did not close in order: %r", error)
                session.interrupt()

    def discard(self) -> None:
        self.interrupt()
        self._session = None

    def interrupt(self) -> None:
        if self._session is not None:
            self._session.interrupt()

    def stop(self) -> None:
        self.place.stop()
        self.place.shared.gate.leave(self)

    def wake(self, due: int) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(due)

    async def _due(self) -> int:
        due = self.place.shared.gate.turn(self)
        if due is not None:
            return due
        self._woken = asyncio.get_running_loop().create_future()
        return await self._woken


class ThreadConnection:
    """One in a thread of its own."""

    def __init__(self, place: Place, sessions: BlockingSessions) -> None:
        self.place = place
        self._sessions = sessions
        self._session: BlockingSession | None = None
        self._lane: Lane | None = None
        self._stopped = threading.Event()
        self._mail: SimpleQueue[int] = SimpleQueue()

    @property
    def is_connecting(self) -> bool:
        return self._session is None

    async def connect(self) -> None:
        self._lane = Lane(f"drumbeat-connection-{self.place.number}")
        await self._lane.run(self._connect)

    def _connect(self) -> None:
        self._session = self._sessions.connect()

    async def drive(self) -> None:
        if self._lane is not None and (session := self._session) is not None:
            await self._lane.run(lambda: self._drive(session))

    def _drive(self, session: BlockingSession) -> None:
        place, shared, execute = self.place, self.place.shared, session.execute
        while place.wanted:
            due = AT_ONCE if shared.gate.free else self._due()
            if due == STOP or (turn := place.begin(due)) is None:
                continue
            try:
                rows = execute(turn[0], turn[1])
            except Exception as error:
                place.failed(turn, failure := _failure(error))
                if failure.lost:
                    return
            else:
                place.succeeded(turn, rows)
            if shared.think_seconds and shared.gate.free:
                self._stopped.wait(shared.think_seconds)

    async def close(self) -> None:
        lane, self._lane = self._lane, None
        if lane is not None:
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await lane.run(self._close)
            except Exception as error:
                log.info("a connection did not close in order: %r", error)
            lane.end()

    def discard(self) -> None:
        """What its thread does now may still end, and a session come of it: that is closed too."""
        self.interrupt()
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.post(self._close)
            lane.end()

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def interrupt(self) -> None:
        if (session := self._session) is not None:
            session.interrupt()

    def stop(self) -> None:
        self.place.stop()
        self._stopped.set()
        self.place.shared.gate.leave(self)

    def wake(self, due: int) -> None:
        self._mail.put(due)

    def _due(self) -> int:
        """Whoever stops us looks for us among those who wait; if that was too early, we leave by ourselves."""
        due = self.place.shared.gate.turn(self)
        if due is not None:
            return due
        if not self.place.wanted:
            self.place.shared.gate.leave(self)
        return self._mail.get()


async def rest(until: asyncio.Event, seconds: float) -> None:
    """Wait, but not beyond an event."""
    try:
        async with asyncio.timeout(seconds):
            await until.wait()
    except TimeoutError:
        return


def _failure(error: Exception) -> Failure:
    """The target's own words, or, for an error it did not expect, ours; such a session is not trusted any more."""
    if isinstance(error, Failure):
        return error
    log.warning("a session failed unexpectedly", exc_info=error)
    return Failure(FAILED, "", f"{type(error).__name__}: {error}", lost=True)
