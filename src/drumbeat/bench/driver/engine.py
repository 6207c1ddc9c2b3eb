"""The PostgreSQL engine: a few threads open connections, one thread drives them, another encodes messages.

The driving thread runs the core, the loop that sends and receives. Every ``BUDGET`` nanoseconds it leaves the core to run
commands, feed messages and collect records. It never waits for the event loop, a reader of records or a new connection.
"""

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from ssl import SSLSocket

import numpy as np

from drumbeat.bench.driver.blocks import BlockMaker
from drumbeat.bench.driver.cancels import CancelRequests
from drumbeat.bench.driver.connection_slots import ConnectionSlots
from drumbeat.bench.driver.core import ConnectionState, Core
from drumbeat.bench.driver.core_c import CCore, library
from drumbeat.bench.driver.core_py import PyCore
from drumbeat.bench.driver.interface import EngineSettings, ErrorSample
from drumbeat.bench.driver.pgwire import PostgresError
from drumbeat.bench.driver.postgres_terms import classify, in_transactions
from drumbeat.bench.driver.prefetch import Feeder
from drumbeat.bench.driver.records import RECORD, TIMED_OUT, Records
from drumbeat.bench.driver.samples import RecordSamples
from drumbeat.bench.driver.session import PostgresAddress, PostgresSession, open_session, statements_of
from drumbeat.bench.driver.switching import short_switch_interval
from drumbeat.bench.model import Load
from drumbeat.bench.values.draw import Draw
from drumbeat.core.errors import DrumbeatError, InvalidInput, InvalidSettings

log = logging.getLogger(__name__)

BUDGET = 25_000_000  #: how many nanoseconds the driving thread spends in the core at a time
_ANSWER_WITHIN = 5.0  #: seconds to wait for the driving thread, which answers much sooner unless it has ended


class PostgresEngine:
    """Runs one worker's load on a PostgreSQL server; see ``Engine``."""

    def __init__(self, address: PostgresAddress, load: Load, draw: Draw, settings: EngineSettings) -> None:
        self._address = address
        self._load = in_transactions(load)
        self._settings = settings
        self._core: Core | None = None
        self._slots = ConnectionSlots()
        self._new_sessions: list[PostgresSession] = []  #: connections that are open but not yet added to the core
        self._commands: queue.SimpleQueue[Callable[[Core], None]] = queue.SimpleQueue()
        self._record_batches: deque[bytes] = deque()
        self._stop = threading.Event()
        self._feeder = Feeder(BlockMaker(self._load, draw), self._stop, lambda: self._completed)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._while_driving = ExitStack()
        self._connects: ThreadPoolExecutor | None = None
        self._cancels = CancelRequests(address)
        self._samples = RecordSamples(self._load, statements_of(load), classify)
        self._accepting = False
        self._completed = 0  #: how many operations have ended so far
        self._in_flight = self._backlog = self._failed = self._failed_connects = 0
        self._last_connect_error = ""
        self.failure: Exception | None = None

    async def open(self) -> None:
        first = await asyncio.to_thread(self._first_session)
        self._core = self._core_for(first)
        think = round(self._load.think.total_seconds() * 1e9)
        self._core.configure(round(self._settings.limit.total_seconds() * 1e9), think, self._settings.hottest_first)
        self._core.add(0, first.socket)
        self._slots.open[0] = first
        self._slots.wanted = 1
        self._connects = ThreadPoolExecutor(self._settings.parallel_connects, thread_name_prefix="connect")
        self._while_driving.enter_context(short_switch_interval())
        for work, name in ((self._feeder.run, "bench-maker"), (self._drive, "bench-driver")):
            thread = threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _first_session(self) -> PostgresSession:
        try:
            return open_session(self._address, self._load, self._settings.connect_limit)
        except (OSError, PostgresError) as exc:
            raise InvalidSettings(f"cannot connect to {self._address.location}: {exc}; is the database running?") from exc

    def _core_for(self, session: PostgresSession) -> Core:
        if isinstance(session.socket, SSLSocket) or library() is None:
            return PyCore(self._settings.most_connections)
        return CCore(self._settings.most_connections)

    def set_target(self, connections: int) -> None:
        most = self._settings.most_connections
        if connections > most:
            log.warning("%d connections requested, but this worker can open at most %d; opening %d", connections, most, most)
        with self._lock:
            self._slots.wanted = max(0, min(connections, most))
            self._slots.changed = True
        self._enqueue(lambda core: self._adjust(core))

    def set_rate(self, per_second: float | None) -> None:
        if per_second is not None and per_second < 0:
            raise InvalidInput(f"expected a rate of at least 0, or None, got {per_second}")
        self._enqueue(lambda core: core.set_rate(per_second))

    def drop_overdue(self) -> None:
        self._enqueue(lambda core: core.drop_overdue())

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch (phase number), which marks where measuring begins and ends, without waiting for the driving thread."""
        if self._core is not None:
            self._core.set_epoch(epoch)

    def accept(self, accepting: bool) -> None:
        """Allow or stop new operations. Stopping takes effect at once, but allowing waits until earlier commands have run."""
        if self._core is not None and not accepting:
            self._core.accept(False)
        self._enqueue(lambda core: self._set_accepting(core, accepting))

    def _set_accepting(self, core: Core, accepting: bool) -> None:
        self._accepting = accepting
        core.accept(accepting)

    def _enqueue(self, command: Callable[[Core], None]) -> None:
        self._commands.put(command)

    def take(self) -> Records:
        batches = [self._record_batches.popleft() for _ in range(len(self._record_batches))]
        return np.frombuffer(bytearray().join(batches), dtype=RECORD)

    @property
    def open_connections(self) -> int:
        return len(self._slots.open)

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def backlog(self) -> int:
        return self._backlog

    @property
    def failed_connects(self) -> int:
        return self._failed_connects

    @property
    def error_samples(self) -> Sequence[ErrorSample]:
        return self._samples.all

    @property
    def driving_thread(self) -> int | None:
        return next((thread.ident for thread in self._threads if thread.name == "bench-driver" and thread.is_alive()), None)

    @property
    def compiled(self) -> bool:
        """Whether the core in C is used, not the one in Python."""
        return isinstance(self._core, CCore)

    async def drain(self, within: timedelta) -> int:
        self.accept(False)
        deadline = time.monotonic() + within.total_seconds()
        while (running := await self._ask(lambda core: core.in_flight)) and time.monotonic() < deadline:
            continue
        if running:
            await self._ask(lambda core: core.give_up())
        return running

    async def _ask(self, read: Callable[[Core], int | None]) -> int:
        """Call ``read(core)`` in the driving thread and return the result; 0 if that thread has ended."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[int] = loop.create_future()

        def settle(value: int) -> None:
            if not answer.done():
                answer.set_result(value)

        def reply(core: Core) -> None:
            loop.call_soon_threadsafe(settle, read(core) or 0)

        self._enqueue(reply)
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                return await answer
        except TimeoutError:
            return 0

    async def close(self) -> None:
        self._stop.set()
        await asyncio.to_thread(self._join)
        for session in (*self._slots.open.values(), *self._new_sessions):
            session.close()
        self._slots.open.clear()
        self._new_sessions.clear()
        if self._core is not None:
            self._core.close()
            self._core = None

    def _join(self) -> None:
        """Wait until no thread uses the core or its connections, so that they can be closed."""
        for thread in self._threads:
            thread.join()
        self._while_driving.close()
        if self._connects is not None:
            self._connects.shutdown(wait=True, cancel_futures=True)
        if self._core is not None:
            self._core.give_up()
            self._collect(self._core)
        self._cancels.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as exc:
            log.exception("a driver thread failed; stopping the load")
            self.failure = exc
            self._stop.set()

    def _drive(self) -> None:
        """Run the core until the engine is stopped. This is the driving thread's main loop."""
        core = self._core
        if core is None:
            return
        while not self._stop.is_set():
            self._run_commands(core)
            self._feeder.feed(core)
            core.run(BUDGET)
            self._collect(core)
            if not self._accepting and not self._in_flight:
                self._wait_for_command(core)
        self._collect(core)

    def _wait_for_command(self, core: Core) -> None:
        """Wait briefly for another thread's command, and run it. Called when no operation runs and none is allowed to begin."""
        try:
            self._commands.get(timeout=BUDGET / 1e9)(core)
        except queue.Empty:
            return

    def _run_commands(self, core: Core) -> None:
        for _ in range(self._commands.qsize()):
            self._commands.get()(core)
        self._adjust(core)

    def _collect(self, core: Core) -> None:
        """Take finished records, counts of running and waiting operations, and lost connections from the core."""
        if records := core.take():
            self._record_batches.append(records)
            self._completed += len(records) // RECORD.itemsize
        given_up: set[int] = set()
        if core.failed > self._failed:
            self._failed = core.failed
            given_up = self._sample_failures(core, np.frombuffer(records, dtype=RECORD))
        self._in_flight, self._backlog = core.in_flight, core.backlog
        for slot, state in core.collect():
            self._release(slot, state, given_up=slot in given_up)

    def _sample_failures(self, core: Core, records: Records) -> set[int]:
        """Keep samples of failed operations. Returns the connections on which an operation timed out; it might still run in the
        server."""
        self._samples.add(records, core.error_message)
        return set(records["connection"][records["outcome"] == TIMED_OUT].tolist())

    def _release(self, slot: int, state: ConnectionState, *, given_up: bool) -> None:
        """Free a lost or retired connection's slot. If its operation timed out, first ask the server to cancel it."""
        with self._lock:
            session = self._slots.open.pop(slot, None)
            self._slots.leaving.discard(slot)
            self._slots.changed = True
            if given_up and session is not None:
                self._slots.opening.add(slot)
            if state is ConnectionState.DEAD:
                self._slots.note_failure(slot, time.monotonic())
        if session is not None and given_up:
            self._cancels.end(session, lambda: self._free_slot(slot))
        elif session is not None:
            session.close()

    def _free_slot(self, slot: int) -> None:
        with self._lock:
            self._slots.opening.discard(slot)
            self._slots.changed = True

    def _adjust(self, core: Core) -> None:
        """Open missing connections and retire surplus ones, so that as many are open as wanted."""
        now = time.monotonic()
        if not self._slots.is_check_due(now):
            return
        with self._lock:
            self._slots.changed = False
            missing, surplus = self._slots.missing(now), self._slots.surplus()
            self._slots.opening.update(missing)
            self._slots.leaving.update(surplus)
        for slot in surplus:
            core.retire(slot)
        for slot in missing:
            if self._connects is not None and not self._stop.is_set():
                self._connects.submit(self._connect, slot)

    def _connect(self, slot: int) -> None:
        """Open a connection for a slot. Runs in the thread pool ``_connects``."""
        if self._stop.is_set():
            return
        try:
            session = open_session(self._address, self._load, self._settings.connect_limit)
        except (OSError, PostgresError, DrumbeatError) as exc:
            self._note_failed_connect(slot, exc)
            return
        with self._lock:
            self._new_sessions.append(session)
        self._enqueue(lambda core: self._admit(core, slot, session))

    def _note_failed_connect(self, slot: int, exc: Exception) -> None:
        with self._lock:
            self._failed_connects += 1
            self._slots.note_failure(slot, time.monotonic())
            self._slots.opening.discard(slot)
            self._slots.changed = True
        if str(exc) != self._last_connect_error:
            self._last_connect_error = str(exc)
            log.warning("failed to connect to %s: %s; retrying", self._address.location, exc)
        if isinstance(exc, InvalidInput | InvalidSettings) and not self._slots.open:
            self.failure = self.failure or exc

    def _admit(self, core: Core, slot: int, session: PostgresSession) -> None:
        with self._lock:
            self._new_sessions.remove(session)
            self._slots.note_opened(slot, session)
        core.add(slot, session.socket)
