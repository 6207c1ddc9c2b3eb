"""The PostgreSQL engine: connections opened by a few threads, driven by one, fed by another.

The driving thread is in the core nearly all the time. It comes back every ``BUDGET`` to be fed, emptied and told, which takes a
fraction of a percent of it; nothing it does waits for the event loop, for whoever reads records, or for a connection.
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
from drumbeat.bench.driver.cancels import Cancels
from drumbeat.bench.driver.connection_slots import ConnectionSlots
from drumbeat.bench.driver.core import ConnectionState, Core
from drumbeat.bench.driver.core_c import CCore, library
from drumbeat.bench.driver.core_py import PyCore
from drumbeat.bench.driver.interface import EngineSettings, ErrorSample
from drumbeat.bench.driver.pgwire import ServerSaid
from drumbeat.bench.driver.postgres_terms import classify, together
from drumbeat.bench.driver.prefetch import Feeder
from drumbeat.bench.driver.records import RECORD, TIMED_OUT, Records
from drumbeat.bench.driver.samples import RecordSamples
from drumbeat.bench.driver.session import PostgresAddress, PostgresSession, open_session, statements_of
from drumbeat.bench.driver.switching import quick_switching
from drumbeat.bench.model import Load
from drumbeat.bench.values.draw import Draw
from drumbeat.core.errors import DrumbeatError, InvalidInput, InvalidSettings

log = logging.getLogger(__name__)

BUDGET = 25_000_000  #: nanoseconds in the core between two visits to Python
_ANSWER_WITHIN = 5.0  #: seconds; the driving thread comes by far sooner, unless it has ended
_BACKOFF = (0.1, 5.0)  #: seconds, doubling, before a lost connection is tried again


class PostgresEngine:
    """One worker's connections to a PostgreSQL server."""

    def __init__(self, address: PostgresAddress, load: Load, draw: Draw, settings: EngineSettings) -> None:
        self._address = address
        self._load = together(load)
        self._settings = settings
        self._core: Core | None = None
        self._places = ConnectionSlots()
        self._arriving: list[PostgresSession] = []  #: opened, and not yet taken over by the driving thread
        self._orders: queue.SimpleQueue[Callable[[Core], None]] = queue.SimpleQueue()
        self._taken: deque[bytes] = deque()
        self._stop = threading.Event()
        self._feeder = Feeder(BlockMaker(self._load, draw), self._stop, lambda: self._ended)
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._while_driving = ExitStack()
        self._connects: ThreadPoolExecutor | None = None
        self._cancels = Cancels(address)
        self._samples = RecordSamples(self._load, statements_of(load), classify)
        self._accepting = False
        self._ended = 0  #: operations so far
        self._in_flight = self._backlog = self._failed = self._failed_connects = 0
        self._last_refusal = ""
        self.failure: Exception | None = None

    async def open(self) -> None:
        first = await asyncio.to_thread(self._first_session)
        self._core = self._core_for(first)
        think = round(self._load.think.total_seconds() * 1e9)
        self._core.configure(round(self._settings.limit.total_seconds() * 1e9), think, self._settings.hottest_first)
        self._core.add(0, first.socket)
        self._places.open[0] = first
        self._places.wanted = 1
        self._connects = ThreadPoolExecutor(self._settings.parallel_connects, thread_name_prefix="connect")
        self._while_driving.enter_context(quick_switching())
        for work, name in ((self._feeder.run, "bench-maker"), (self._drive, "bench-driver")):
            thread = threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _first_session(self) -> PostgresSession:
        try:
            return open_session(self._address, self._load, self._settings.connect_limit)
        except (OSError, ServerSaid) as exc:
            raise InvalidSettings(f"cannot reach {self._address.location}: {exc}; is it running?") from exc

    def _core_for(self, session: PostgresSession) -> Core:
        if isinstance(session.socket, SSLSocket) or library() is None:
            return PyCore(self._settings.most_connections)
        return CCore(self._settings.most_connections)

    def set_target(self, connections: int) -> None:
        most = self._settings.most_connections
        if connections > most:
            log.warning("asked to hold %d connections; this worker holds at most %d", connections, most)
        with self._lock:
            self._places.wanted = max(0, min(connections, most))
            self._places.changed = True
        self._order(lambda core: self._adjust(core))

    def set_rate(self, per_second: float | None) -> None:
        if per_second is not None and per_second < 0:
            raise InvalidInput(f"expected a rate of at least 0, or none, got {per_second}")
        self._order(lambda core: core.set_rate(per_second))

    def forgive(self) -> None:
        self._order(lambda core: core.forgive())

    def set_epoch(self, epoch: int) -> None:
        """At once, not when the driving thread next comes by: what is measured begins and ends with it."""
        if self._core is not None:
            self._core.set_epoch(epoch)

    def accept(self, accepting: bool) -> None:
        """An end takes effect at once; a beginning after the orders given before it."""
        if self._core is not None and not accepting:
            self._core.accept(False)
        self._order(lambda core: self._let_begin(core, accepting))

    def _let_begin(self, core: Core, accepting: bool) -> None:
        self._accepting = accepting
        core.accept(accepting)

    def _order(self, order: Callable[[Core], None]) -> None:
        self._orders.put(order)

    def take(self) -> Records:
        taken = [self._taken.popleft() for _ in range(len(self._taken))]
        return np.frombuffer(bytearray().join(taken), dtype=RECORD)

    @property
    def held(self) -> int:
        return len(self._places.open)

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
        """Whether the C core drives."""
        return isinstance(self._core, CCore)

    async def drain(self, within: timedelta) -> int:
        self.accept(False)
        deadline = time.monotonic() + within.total_seconds()
        while (running := await self._ask(lambda core: core.in_flight)) and time.monotonic() < deadline:
            continue
        if running:
            await self._ask(lambda core: core.give_up())
        return running

    async def _ask(self, question: Callable[[Core], int | None]) -> int:
        """What the driving thread answers when it next comes by; 0 when it has ended."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[int] = loop.create_future()

        def settle(value: int) -> None:
            if not answer.done():
                answer.set_result(value)

        def reply(core: Core) -> None:
            loop.call_soon_threadsafe(settle, question(core) or 0)

        self._order(reply)
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                return await answer
        except TimeoutError:
            return 0

    async def close(self) -> None:
        self._stop.set()
        await asyncio.to_thread(self._join)
        for session in (*self._places.open.values(), *self._arriving):
            session.close()
        self._places.open.clear()
        self._arriving.clear()
        if self._core is not None:
            self._core.close()
            self._core = None

    def _join(self) -> None:
        """Wait until nobody uses the core or its connections any more: only then may they be closed."""
        for thread in self._threads:
            thread.join()
        self._while_driving.close()
        if self._connects is not None:
            self._connects.shutdown(wait=True, cancel_futures=True)
        if self._core is not None:
            self._core.give_up()
            self._empty(self._core)
        self._cancels.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as exc:
            log.exception("the driver failed")
            self.failure = exc
            self._stop.set()

    def _drive(self) -> None:
        """The driving thread."""
        core = self._core
        if core is None:
            return
        while not self._stop.is_set():
            self._obey(core)
            self._feeder.feed(core)
            core.run(BUDGET)
            self._empty(core)
            if not self._accepting and not self._in_flight:
                self._await_order(core)
        self._empty(core)

    def _await_order(self, core: Core) -> None:
        """Nothing runs and nothing may begin: there is nothing to drive."""
        try:
            self._orders.get(timeout=BUDGET / 1e9)(core)
        except queue.Empty:
            return

    def _obey(self, core: Core) -> None:
        for _ in range(self._orders.qsize()):
            self._orders.get()(core)
        self._adjust(core)

    def _empty(self, core: Core) -> None:
        """Take its records, and see what it runs and whom it lost. Nothing here that could be done by another thread."""
        if records := core.take():
            self._taken.append(records)
            self._ended += len(records) // RECORD.itemsize
        given_up: set[int] = set()
        if core.failed > self._failed:
            self._failed = core.failed
            given_up = self._look_into(core, np.frombuffer(records, dtype=RECORD))
        self._in_flight, self._backlog = core.in_flight, core.backlog
        for place, state in core.collect():
            self._let_go(place, state, given_up=place in given_up)

    def _look_into(self, core: Core, records: Records) -> set[int]:
        """Keep examples of what failed; answers with the connections whose operation was given up, and may still run."""
        self._samples.add(records, core.said)
        return set(records["connection"][records["outcome"] == TIMED_OUT].tolist())

    def _let_go(self, place: int, state: ConnectionState, *, given_up: bool) -> None:
        """The place is free at once, or, where an operation was given up, when the server was told."""
        with self._lock:
            session = self._places.open.pop(place, None)
            self._places.leaving.discard(place)
            self._places.changed = True
            if given_up and session is not None:
                self._places.opening.add(place)
        if state is ConnectionState.DEAD:
            self._places.tries[place] += 1
        if session is not None and given_up:
            self._cancels.end(session, lambda: self._vacate(place))
        elif session is not None:
            session.close()

    def _vacate(self, place: int) -> None:
        with self._lock:
            self._places.opening.discard(place)
            self._places.changed = True

    def _adjust(self, core: Core) -> None:
        """Open what is missing, retire what is too many."""
        if not self._places.changed:
            return
        with self._lock:
            self._places.changed = False
            missing, surplus = self._places.missing(), self._places.surplus()
            self._places.opening.update(missing)
            self._places.leaving.update(surplus)
        for place in surplus:
            core.retire(place)
        for place in missing:
            if self._connects is not None and not self._stop.is_set():
                self._connects.submit(self._connect, place)

    def _connect(self, place: int) -> None:
        """In a connecting thread: open one, or give up for a while."""
        if (tries := self._places.tries[place]) and self._stop.wait(min(_BACKOFF[0] * 2 ** (tries - 1), _BACKOFF[1])):
            return
        try:
            session = open_session(self._address, self._load, self._settings.connect_limit)
        except (OSError, ServerSaid, DrumbeatError) as exc:
            self._note_refusal(place, exc)
            return
        with self._lock:
            self._arriving.append(session)
        self._order(lambda core: self._admit(core, place, session))

    def _note_refusal(self, place: int, exc: Exception) -> None:
        with self._lock:
            self._failed_connects += 1
            self._places.tries[place] += 1
            self._places.opening.discard(place)
            self._places.changed = True
        if str(exc) != self._last_refusal:
            self._last_refusal = str(exc)
            log.warning("a connection to %s failed: %s", self._address.location, exc)
        if isinstance(exc, InvalidInput | InvalidSettings) and not self._places.open:
            self.failure = self.failure or exc

    def _admit(self, core: Core, place: int, session: PostgresSession) -> None:
        with self._lock:
            self._arriving.remove(session)
            self._places.opening.discard(place)
            self._places.tries.pop(place, None)
            self._places.open[place] = session
            self._places.changed = True
        core.add(place, session.socket)
