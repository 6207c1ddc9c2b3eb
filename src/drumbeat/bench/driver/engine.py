"""The PostgreSQL engine: connections opened by a few threads, driven by one, fed by another.

The driving thread is in the core nearly all the time. It comes back every ``BUDGET`` to be fed, emptied and told, which takes a
fraction of a percent of it; nothing it does waits for the event loop, for whoever reads records, or for a connection.
"""

import asyncio
import logging
import queue
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from ssl import SSLSocket

import numpy as np

from drumbeat.bench.driver.blocks import Block, BlockMaker
from drumbeat.bench.driver.core import Core, State
from drumbeat.bench.driver.core_c import CCore, library
from drumbeat.bench.driver.core_py import PyCore
from drumbeat.bench.driver.interface import EngineSettings, ErrorSample
from drumbeat.bench.driver.pgwire import ServerSaid
from drumbeat.bench.driver.records import FAILED, LOST, OK, TIMED_OUT, Records, empty
from drumbeat.bench.driver.session import Address, Session, open_session, statements_of
from drumbeat.bench.model import ErrorClass, Load, Operation, Statement
from drumbeat.bench.values import Draw
from drumbeat.core.errors import DrumbeatError, InvalidInput, InvalidSettings

log = logging.getLogger(__name__)

BUDGET = 25_000_000  #: nanoseconds in the core between two visits to Python
_ANSWER_WITHIN = 5.0  #: seconds; the driving thread comes by far sooner, unless it has ended
_BLOCKS_AHEAD = 3
_SMALLEST_BLOCK, _LARGEST_BLOCK = 512, 16_384  #: operations
_BLOCK_LASTS = (0.2, 1.0)  #: seconds; a block that is used up sooner is followed by a larger one
_SAMPLES_A_CLASS = 10
_BACKOFF = (0.1, 5.0)  #: seconds, doubling, before a lost connection is tried again
_SWITCH_INTERVAL = 0.0005  #: so that the driving thread never waits long for another to let go of Python

_OPENINGS = ("BEGIN", "START TRANSACTION")
_CLASSES = {FAILED: ErrorClass.DATABASE_ERROR, TIMED_OUT: ErrorClass.QUERY_TIMEOUT, LOST: ErrorClass.CONNECTION}
_CANCELLED = "57014"  #: query_canceled: what a statement_timeout of the server's own says
_SHUT_DOWN = frozenset({"57P01", "57P02", "57P03", "08006", "08003", "08000"})


def classify(outcome: int, sqlstate: str) -> ErrorClass | None:
    """What went wrong; None when nothing did."""
    if outcome == OK:
        return None
    if sqlstate == _CANCELLED:
        return ErrorClass.QUERY_TIMEOUT
    return ErrorClass.CONNECTION if sqlstate in _SHUT_DOWN else _CLASSES[outcome]


def together(load: Load) -> Load:
    """The load, its operations of several statements each in a transaction, where they do not say so themselves."""
    return replace(load, operations=tuple(_in_transaction(operation) for operation in load.operations))


def _in_transaction(operation: Operation) -> Operation:
    statements = operation.statements
    if len(statements) < 2 or statements[0].sql.strip().upper().startswith(_OPENINGS):
        return operation
    return replace(operation, statements=(Statement(sql="BEGIN"), *statements, Statement(sql="COMMIT")))


@dataclass(slots=True)
class _Places:
    """Which connections there are, and which are on their way."""

    wanted: int = 0
    open: dict[int, Session] = field(default_factory=dict)
    opening: set[int] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)
    tries: Counter[int] = field(default_factory=Counter)

    def missing(self) -> list[int]:
        return [place for place in range(self.wanted) if place not in self.open and place not in self.opening]

    def surplus(self) -> list[int]:
        return [place for place in self.open if place >= self.wanted and place not in self.leaving]


class PostgresEngine:
    """One worker's connections to a PostgreSQL server."""

    def __init__(self, address: Address, load: Load, draw: Draw, settings: EngineSettings) -> None:
        self._address = address
        self._load = together(load)
        self._settings = settings
        self._maker = BlockMaker(self._load, draw)
        self._sql = statements_of(load)
        self._core: Core | None = None
        self._places = _Places()
        self._arriving: list[Session] = []  #: opened, and not yet taken over by the driving thread
        self._orders: queue.SimpleQueue[Callable[[Core], None]] = queue.SimpleQueue()
        self._blocks: queue.Queue[Block] = queue.Queue(_BLOCKS_AHEAD)
        self._taken: deque[Records] = deque()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._connects: ThreadPoolExecutor | None = None
        self._samples: dict[tuple[ErrorClass, str], list[ErrorSample]] = {}
        self._in_flight = self._backlog = self._failed_connects = 0
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
        sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL))
        for work, name in ((self._make_blocks, "bench-maker"), (self._drive, "bench-driver")):
            thread = threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _first_session(self) -> Session:
        try:
            return open_session(self._address, self._load, self._settings.connect_limit)
        except (OSError, ServerSaid) as exc:
            raise InvalidSettings(f"cannot reach {self._address.location}: {exc}; is it running?") from exc

    def _core_for(self, session: Session) -> Core:
        if isinstance(session.socket, SSLSocket) or library() is None:
            return PyCore(self._settings.most_connections)
        return CCore(self._settings.most_connections)

    def set_target(self, connections: int) -> None:
        most = self._settings.most_connections
        if connections > most:
            log.warning("asked to hold %d connections; this worker holds at most %d", connections, most)
        with self._lock:
            self._places.wanted = max(0, min(connections, most))
        self._order(lambda core: self._adjust(core))

    def set_rate(self, per_second: float | None) -> None:
        self._order(lambda core: core.set_rate(per_second or 0.0))

    def set_epoch(self, epoch: int) -> None:
        self._order(lambda core: core.set_epoch(epoch))

    def accept(self, accepting: bool) -> None:
        self._order(lambda core: core.accept(accepting))

    def _order(self, order: Callable[[Core], None]) -> None:
        self._orders.put(order)

    def take(self) -> Records:
        taken = [self._taken.popleft() for _ in range(len(self._taken))]
        return np.concatenate(taken) if taken else empty(0)

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
        return [sample for samples in self._samples.values() for sample in samples]

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
        """What the driving thread answers when it next comes by, within a budget's time; 0 when it has ended."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[int] = loop.create_future()

        def settle(value: int) -> None:
            if not answer.done():
                answer.set_result(value)

        def reply(core: Core) -> None:
            loop.call_soon_threadsafe(settle, question(core) or 0)

        self._order(reply)
        try:
            return await asyncio.wait_for(answer, _ANSWER_WITHIN)
        except TimeoutError:
            return 0

    async def close(self) -> None:
        self._stop.set()
        await asyncio.to_thread(self._join)
        if self._connects is not None:
            self._connects.shutdown(wait=False, cancel_futures=True)
        for session in (*self._places.open.values(), *self._arriving):
            session.close()
        self._places.open.clear()
        self._arriving.clear()
        if self._core is not None:
            self._core.close()
            self._core = None

    def _join(self) -> None:
        for thread in self._threads:
            thread.join(timeout=10)
        if self._connects is not None:
            self._connects.shutdown(wait=True, cancel_futures=True)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as exc:
            log.exception("the driver failed")
            self.failure = exc
            self._stop.set()

    def _make_blocks(self) -> None:
        """The feeding thread: messages ahead of time, in blocks that last about half a second."""
        size, began = _SMALLEST_BLOCK, time.monotonic()
        while not self._stop.is_set():
            self._offer(self._maker.make(size))
            lasted, began = time.monotonic() - began, time.monotonic()
            if lasted < _BLOCK_LASTS[0]:
                size = min(size * 2, _LARGEST_BLOCK)
            elif lasted > _BLOCK_LASTS[1]:
                size = max(size // 2, _SMALLEST_BLOCK)

    def _offer(self, block: Block) -> None:
        """Wait until the block is wanted."""
        while not self._stop.is_set():
            try:
                self._blocks.put(block, timeout=0.1)
            except queue.Full:
                continue
            return

    def _drive(self) -> None:
        """The driving thread."""
        core = self._core
        if core is None:
            return
        while not self._stop.is_set():
            self._obey(core)
            self._feed(core)
            core.run(BUDGET)
            self._empty(core)
        self._empty(core)

    def _obey(self, core: Core) -> None:
        for _ in range(self._orders.qsize()):
            self._orders.get()(core)
        self._adjust(core)

    def _feed(self, core: Core) -> None:
        while core.blocks() < 2:
            try:
                core.feed(self._blocks.get(block=core.blocks() == 0, timeout=0.1))
            except queue.Empty:
                return

    def _empty(self, core: Core) -> None:
        records = core.take()
        if len(records):
            self._taken.append(records)
            self._keep_samples(records)
        self._in_flight, self._backlog = core.in_flight, core.backlog
        for place, state in core.collect():
            self._let_go(place, state)

    def _let_go(self, place: int, state: State) -> None:
        with self._lock:
            session = self._places.open.pop(place, None)
            self._places.leaving.discard(place)
        if session is not None:
            session.close()
        if state is State.DEAD:
            self._places.tries[place] += 1

    def _adjust(self, core: Core) -> None:
        """Open what is missing, retire what is too many."""
        with self._lock:
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
        if str(exc) != self._last_refusal:
            self._last_refusal = str(exc)
            log.warning("a connection to %s failed: %s", self._address.location, exc)
        if isinstance(exc, InvalidInput | InvalidSettings) and not self._places.open:
            self.failure = self.failure or exc

    def _admit(self, core: Core, place: int, session: Session) -> None:
        with self._lock:
            self._arriving.remove(session)
            self._places.opening.discard(place)
            self._places.tries.pop(place, None)
            self._places.open[place] = session
        core.add(place, session.socket)

    def _keep_samples(self, records: Records) -> None:
        failed = records[records["outcome"] != OK]
        for record in failed[:_SAMPLES_A_CLASS]:
            sqlstate = bytes(record["sqlstate"]).decode()
            kind = int(record["kind"])
            error_class = classify(int(record["outcome"]), sqlstate) or ErrorClass.FATAL
            kept = self._samples.setdefault((error_class, sqlstate), [])
            if len(kept) < _SAMPLES_A_CLASS:
                kept.append(
                    ErrorSample(
                        kind=self._load.used[kind].kind,
                        error_class=error_class,
                        sqlstate=sqlstate,
                        message=sqlstate or error_class,
                        sql=self._sql[kind],
                    )
                )
