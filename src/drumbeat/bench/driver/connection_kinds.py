"""Connections for async and for blocking database drivers. Each waits for its turn, runs an operation, and repeats."""

import asyncio
import logging
import threading
from queue import SimpleQueue

from drumbeat.bench.driver.connection import ConnectionSlot
from drumbeat.bench.driver.driver_thread import CallThread
from drumbeat.bench.driver.pacing import AT_ONCE, STOP
from drumbeat.bench.driver.records import FAILED
from drumbeat.bench.driver.session_kinds import AsyncSession, AsyncSessions, BlockingSession, BlockingSessions, OperationFailure

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 1.0
_NOT_CLOSED = "connection %d to the database under test did not close cleanly: %r; abandoning the connection"


class AsyncConnection:
    """A connection with an async database driver. All such connections share the event loop's thread."""

    def __init__(self, slot: ConnectionSlot, sessions: AsyncSessions) -> None:
        self.slot = slot
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
        slot, shared, execute = self.slot, self.slot.shared, self._session.execute
        while slot.wanted:
            due = AT_ONCE if shared.gate.free else await self._due()
            if due == STOP or (turn := slot.begin(due)) is None:
                continue
            try:
                rows = await execute(turn[0], turn[1])
            except Exception as error:
                slot.failed(turn, failure := _failure(error))
                if failure.lost:
                    return
            else:
                slot.succeeded(turn, rows)
            if shared.think_seconds and shared.gate.free:
                await slot.rest(shared.think_seconds)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await session.close()
            except Exception as error:
                log.info(_NOT_CLOSED, self.slot.number, error)
                session.interrupt()

    def discard(self) -> None:
        self.interrupt()
        self._session = None

    def interrupt(self) -> None:
        if self._session is not None:
            self._session.interrupt()

    def stop(self) -> None:
        self.slot.stop()
        self.slot.shared.gate.leave(self)

    def wake(self, due: int) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(due)

    async def _due(self) -> int:
        due = self.slot.shared.gate.turn(self)
        if due is not None:
            return due
        self._woken = asyncio.get_running_loop().create_future()
        return await self._woken


class ThreadConnection:
    """A connection with a blocking database driver, in its own thread."""

    def __init__(self, slot: ConnectionSlot, sessions: BlockingSessions) -> None:
        self.slot = slot
        self._sessions = sessions
        self._session: BlockingSession | None = None
        self._lane: CallThread | None = None
        self._stopped = threading.Event()
        self._turns: SimpleQueue[int] = SimpleQueue()

    @property
    def is_connecting(self) -> bool:
        return self._session is None

    async def connect(self) -> None:
        self._lane = CallThread(f"drumbeat-connection-{self.slot.number}")
        await self._lane.run(self._connect)

    def _connect(self) -> None:
        self._session = self._sessions.connect()

    async def drive(self) -> None:
        if self._lane is not None and (session := self._session) is not None:
            await self._lane.run(lambda: self._drive(session))

    def _drive(self, session: BlockingSession) -> None:
        slot, shared, execute = self.slot, self.slot.shared, session.execute
        while slot.wanted:
            due = AT_ONCE if shared.gate.free else self._due()
            if due == STOP or (turn := slot.begin(due)) is None:
                continue
            try:
                rows = execute(turn[0], turn[1])
            except Exception as error:
                slot.failed(turn, failure := _failure(error))
                if failure.lost:
                    return
            else:
                slot.succeeded(turn, rows)
            if shared.think_seconds and shared.gate.free:
                self._stopped.wait(shared.think_seconds)

    async def close(self) -> None:
        lane, self._lane = self._lane, None
        if lane is not None:
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await lane.run(self._close)
            except Exception as error:
                log.info(_NOT_CLOSED, self.slot.number, error)
            lane.end()

    def discard(self) -> None:
        """Interrupt the connection; its thread closes it later, even if its session is still being opened."""
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
        self.slot.stop()
        self._stopped.set()
        self.slot.shared.gate.leave(self)

    def wake(self, due: int) -> None:
        self._turns.put(due)

    def _due(self) -> int:
        """Wait until the next operation can begin, and return its due time; STOP if the connection is stopped before that."""
        due = self.slot.shared.gate.turn(self)
        if due is not None:
            return due
        if not self.slot.wanted:
            self.slot.shared.gate.leave(self)
        return self._turns.get()


def _failure(error: Exception) -> OperationFailure:
    """Return the error as OperationFailure. After an unexpected error, the session counts as lost: its state is unknown."""
    if isinstance(error, OperationFailure):
        return error
    log.warning("a database session failed with an unexpected error; opening a new session", exc_info=error)
    return OperationFailure(FAILED, "", f"{type(error).__name__}: {error}", lost=True)
