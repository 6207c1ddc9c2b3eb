"""An engine for any database: coroutines if its Python driver is async, otherwise one thread per connection."""

import asyncio
import heapq
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta

from drumbeat.bench.driver.connection import ConnectionSlot, DriverConnection, EngineState, sleep_unless_set
from drumbeat.bench.driver.connection_kinds import AsyncConnection, ThreadConnection
from drumbeat.bench.driver.interface import EngineSettings, ErrorSample
from drumbeat.bench.driver.operation_source import OperationSource, Timestamp
from drumbeat.bench.driver.pacing import Pacer, PacingGate
from drumbeat.bench.driver.recorder import RecorderSet
from drumbeat.bench.driver.records import LOST, Records
from drumbeat.bench.driver.samples import Classify, ErrorSamples
from drumbeat.bench.driver.session_kinds import AsyncSessions, OperationFailure, Sessions
from drumbeat.bench.model import Load
from drumbeat.bench.values.draw import Draw
from drumbeat.core.errors import InvalidInput, InvalidSettings

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  #: seconds before a lost connection is opened again; doubles each time
_DATABASE_GRACE = 500_000_000  #: nanoseconds added to the timeout if the database enforces it itself
_LAST_GRACE = 1_000_000_000  #: nanoseconds that an interrupted operation may take to end
_CONNECT_GRACE = 1.0  #: seconds that ``close`` waits for connections that are being opened
_POLL_SECONDS = 0.002


class GenericEngine:
    """Runs a load on any database; see ``Engine``. The target provides ``sessions``, ``classify`` and ``timestamp``."""

    def __init__(
        self,
        *,
        load: Load,
        draw: Draw,
        settings: EngineSettings,
        sessions: Sessions,
        classify: Classify,
        timestamp: Timestamp,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._on_close = on_close
        self._sessions = sessions
        self._gate = PacingGate(hottest_first=settings.hottest_first)
        self._recorders = RecorderSet()
        self._samples = ErrorSamples(load, classify)
        source = OperationSource(load, draw, timestamp)
        self._shared = EngineState(self._gate, source, load.think.total_seconds(), self._samples.add)
        limit = int(settings.limit.total_seconds() * 1e9)
        self._interrupt_after = limit + (_DATABASE_GRACE if sessions.enforces_timeout else 0)
        self._connecting = asyncio.Semaphore(settings.parallel_connects)
        self._connections: dict[int, DriverConnection] = {}
        self._numbers = itertools.count()
        self._free_numbers: list[int] = []
        self._target = 0
        self._held = 0
        self._failed_connects = 0
        self._failure: Exception | None = None
        self._driving_thread: int | None = None
        self._exit = AsyncExitStack()
        self._group: asyncio.TaskGroup | None = None
        self._pacer: Pacer | None = None
        self._closing = asyncio.Event()

    # Open, drain, close

    async def open(self) -> None:
        await self._try_connection()
        self._group = await self._exit.enter_async_context(asyncio.TaskGroup())
        self._group.create_task(self._watch())
        if isinstance(self._sessions, AsyncSessions):
            self._driving_thread = threading.get_ident()
            call_soon = asyncio.get_running_loop().call_soon_threadsafe
            self._pacer = Pacer(self._gate, lambda: call_soon(self._gate.fire))
        else:
            self._pacer = Pacer(self._gate, self._gate.fire)
        self._reconcile()

    async def drain(self, within: timedelta) -> int:
        self._gate.accept(False)
        try:
            async with asyncio.timeout(within.total_seconds()):
                while self.in_flight:
                    await sleep_unless_set(self._closing, _POLL_SECONDS)
        except TimeoutError:
            return self._give_up("still running at the end of the drain timeout")
        return 0

    async def close(self) -> None:
        self._gate.accept(False)
        self._target = 0
        self._closing.set()
        self._give_up("still running when the connections were closed")
        for connection in list(self._connections.values()):
            connection.stop()
            if connection.is_connecting:
                connection.slot.end_wait(after=_CONNECT_GRACE)
        await self._exit.aclose()
        self._group = None
        if self._pacer is not None:
            await asyncio.to_thread(self._pacer.end)
        self._on_close()

    # Commands

    def set_target(self, connections: int) -> None:
        self._target = min(max(connections, 0), self._settings.most_connections)
        self._reconcile()

    def set_rate(self, per_second: float | None) -> None:
        if per_second is not None and per_second < 0:
            raise InvalidInput(f"expected a rate of at least 0, or None, got {per_second}")
        self._gate.set_rate(per_second)
        self._wake_pacer()

    def drop_overdue(self) -> None:
        self._gate.drop_overdue()

    def set_epoch(self, epoch: int) -> None:
        self._shared.epoch = epoch

    def accept(self, accepting: bool) -> None:
        self._gate.accept(accepting and self._failure is None)
        self._wake_pacer()

    # Results and state

    def take(self) -> Records:
        return self._recorders.take()

    @property
    def open_connections(self) -> int:
        return self._held

    @property
    def in_flight(self) -> int:
        return sum(connection.slot.busy for connection in list(self._connections.values()))

    @property
    def backlog(self) -> int:
        return self._gate.backlog

    @property
    def failed_connects(self) -> int:
        return self._failed_connects

    @property
    def error_samples(self) -> Sequence[ErrorSample]:
        return self._samples.all

    @property
    def driving_thread(self) -> int | None:
        return self._driving_thread

    @property
    def failure(self) -> Exception | None:
        return self._failure

    # Opening and closing connections

    def _reconcile(self) -> None:
        if self._group is None:
            return
        wanted = [connection for connection in self._connections.values() if connection.slot.wanted]
        for connection in wanted[self._target :]:
            connection.stop()
        for _ in range(self._target - len(wanted)):
            connection = self._new_connection()
            self._connections[connection.slot.number] = connection
            self._group.create_task(self._hold(connection))

    def _new_connection(self) -> DriverConnection:
        number = heapq.heappop(self._free_numbers) if self._free_numbers else next(self._numbers)
        if isinstance(self._sessions, AsyncSessions):
            return AsyncConnection(ConnectionSlot(number, self._shared, self._recorders.own), self._sessions)
        return ThreadConnection(ConnectionSlot(number, self._shared, self._recorders.add()), self._sessions)

    def _forget(self, connection: DriverConnection) -> None:
        slot = connection.slot
        self._connections.pop(slot.number, None)
        heapq.heappush(self._free_numbers, slot.number)
        if slot.recorder is not self._recorders.own:
            self._recorders.retire(slot.recorder)

    async def _hold(self, connection: DriverConnection) -> None:
        """Run one connection until it is stopped. Never raises, because an error would end all other connections.

        A connection that does not respond is replaced, not reused, because its thread could wake up at any time.
        """
        try:
            await self._connect_and_drive(connection)
        except Exception as error:
            self._failure = self._failure or error
            self._gate.accept(False)
        finally:
            self._forget(connection)
            if not self._failure:
                self._reconcile()

    async def _connect_and_drive(self, connection: DriverConnection) -> None:
        slot, pause = connection.slot, _FIRST_PAUSE / 2
        while slot.wanted:
            slot.served = False
            if await self._connect(connection):
                await self._drive(connection)
            pause = _FIRST_PAUSE if slot.served else min(2 * pause, _LONGEST_PAUSE)
            await slot.rest(pause)

    async def _connect(self, connection: DriverConnection) -> bool:
        async with self._connecting:
            if not connection.slot.wanted:
                return False
            try:
                async with connection.slot.within(self._settings.connect_limit.total_seconds()):
                    await connection.connect()
            except Exception as error:
                connection.discard()
                self._count_failed_connect(connection.slot, error)
                if isinstance(error, TimeoutError):
                    connection.stop()
                return False
        return True

    async def _drive(self, connection: DriverConnection) -> None:
        self._held += 1
        responds = True
        try:
            async with connection.slot.within(None):
                await connection.drive()
        except TimeoutError:
            responds = False
        finally:
            if responds:
                await connection.close()
            else:
                connection.discard()
                connection.stop()
            self._held -= 1

    async def _try_connection(self) -> None:
        connection = self._new_connection()
        limit = self._settings.connect_limit.total_seconds()
        try:
            async with connection.slot.within(limit):
                await connection.connect()
        except BaseException as error:
            connection.discard()
            if isinstance(error, OperationFailure | TimeoutError):
                reason = str(error) or f"no answer within {limit:g} s"
                raise InvalidSettings(f"cannot connect to the database under test: {reason}; is it running?") from error
            raise
        finally:
            self._forget(connection)
        await connection.close()

    def _count_failed_connect(self, slot: ConnectionSlot, error: Exception) -> None:
        if slot.wanted:
            self._failed_connects += 1
            message = str(error) or f"no answer within {self._settings.connect_limit.total_seconds():g} s"
            self._samples.add_connect(error if isinstance(error, OperationFailure) else OperationFailure(LOST, "", message))

    # Operations that take too long

    async def _watch(self) -> None:
        """Interrupt each operation that exceeds the timeout. If it still does not end, record it as timed out and replace its
        connection."""
        pause = min(max(self._settings.limit.total_seconds() / 20, 0.01), 0.25)
        while not self._closing.is_set():
            now = time.monotonic_ns()
            for connection in list(self._connections.values()):
                self._check(connection, now)
            await sleep_unless_set(self._closing, pause)

    def _check(self, connection: DriverConnection, now: int) -> None:
        slot = connection.slot
        if not (running := list(slot.running)):
            return
        age = now - running[0][-1]
        if age > self._interrupt_after + _LAST_GRACE:
            if slot.give_up(running[0], self._recorders.own, f"no answer within {self._settings.limit.total_seconds():g} s"):
                slot.end_wait()
        elif age > self._interrupt_after and slot.expired is not running[0]:
            slot.expired = running[0]
            connection.interrupt()

    def _give_up(self, reason: str) -> int:
        """Record all running operations as timed out; returns how many there were."""
        given_up = 0
        for connection in list(self._connections.values()):
            for turn in list(connection.slot.running):
                if connection.slot.give_up(turn, self._recorders.own, reason):
                    given_up += 1
                    connection.slot.end_wait()
        return given_up

    def _wake_pacer(self) -> None:
        if self._pacer is not None:
            self._pacer.wake()
