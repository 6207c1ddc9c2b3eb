"""The loop that sends operations to PostgreSQL, in Python: for encrypted connections, or if the C version was not built."""

import errno
import select
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from socket import socket
from ssl import SSLSocket, SSLWantReadError, SSLWantWriteError

import numpy as np

from drumbeat.bench.driver import pgwire
from drumbeat.bench.driver.answers import MOST_ROWS, rows_of, rows_of_whole_answer
from drumbeat.bench.driver.blocks import MessageBlock
from drumbeat.bench.driver.core import ROOM, TOO_MANY_BLOCKS, ConnectionState
from drumbeat.bench.driver.pacing import RateSchedule
from drumbeat.bench.driver.records import FAILED, LOST, OK, RECORD, TIMED_OUT

_READ_SIZE = 65536
_SWEEP_NS = 50_000_000
_ROLLBACK = pgwire.query("ROLLBACK")
_WOULD_BLOCK = (BlockingIOError, InterruptedError, SSLWantReadError, SSLWantWriteError)

now_ns = time.monotonic_ns


@dataclass(slots=True)
class _Connection:
    socket: socket
    state: ConnectionState = ConnectionState.IDLE
    retiring: bool = False
    kind: int = 0
    epoch: int = 0
    due: int = 0
    start: int = 0
    wake: int = 0
    rows: int = 0
    sqlstate: bytes = b""
    cleaning: bool = False
    steps: deque[bytes] = field(default_factory=deque)
    unread: bytearray = field(default_factory=bytearray)
    unsent: bytes = b""


class PyCore:
    """The Python version of ``Core``, the loop that sends operations to PostgreSQL and receives the answers."""

    def __init__(self, connections: int) -> None:
        self._all: dict[int, _Connection] = {}
        self._by_fd: dict[int, int] = {}
        self._epoll = select.epoll()
        self._idle: deque[int] = deque()
        self._thinking: deque[int] = deque()
        self._blocks: deque[MessageBlock] = deque()
        self._messages: deque[tuple[int, list[bytes]]] = deque()
        self._records: list[tuple[int, int, int, int, int, int, int, int, bytes]] = []
        self._gone: list[tuple[int, ConnectionState]] = []
        self._error_messages: dict[str, str] = {}  #: for each SQLSTATE, the first error message from the server
        self._limit_ns = self._think_ns = self._next_sweep = 0
        self._hottest_first = False
        self._pace = RateSchedule()
        self._accepting = False
        self._epoch = 0
        self._in_flight = self._failed = 0

    def add(self, index: int, connection: socket) -> None:
        if index in self._all or any(index == slot for slot, _ in self._gone):
            raise OSError(errno.EBUSY, f"could not add connection {index}: its number is in use")
        self._epoll.register(connection.fileno(), select.EPOLLIN)
        self._all[index] = _Connection(connection)
        self._by_fd[connection.fileno()] = index
        self._make_idle(index)

    def retire(self, index: int) -> None:
        if index in self._all:
            self._all[index].retiring = True

    def collect(self) -> Sequence[tuple[int, ConnectionState]]:
        gone, self._gone = self._gone, []
        return gone

    def feed(self, block: MessageBlock) -> None:
        if self.blocks() == 2:
            raise ValueError(TOO_MANY_BLOCKS)
        self._blocks.append(block)

    def blocks(self) -> int:
        return len(self._blocks) + bool(self._messages)

    def configure(self, limit_ns: int, think_ns: int, hottest_first: bool) -> None:
        self._limit_ns, self._think_ns, self._hottest_first = limit_ns, think_ns, hottest_first

    def set_rate(self, per_second: float | None) -> None:
        self._pace.set(per_second, now_ns())

    def drop_overdue(self) -> None:
        self._pace.drop_overdue(now_ns())

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch % 256

    def accept(self, accepting: bool) -> None:
        if accepting and not self._accepting:
            self._pace.restart(now_ns())
        self._accepting = accepting

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def _is_paced(self) -> bool:
        return self._pace.per_second is not None

    @property
    def backlog(self) -> int:
        return self._pace.overdue(now_ns()) if self._accepting and not self._idle else 0

    def give_up(self) -> None:
        for index in [index for index, each in self._all.items() if each.state is ConnectionState.BUSY]:
            self._lose(index, TIMED_OUT)

    def take(self) -> bytes:
        records, self._records = self._records, []
        return np.array(records, dtype=RECORD).tobytes()

    @property
    def failed(self) -> int:
        return self._failed

    def close(self) -> None:
        self._epoll.close()

    def run(self, budget_ns: int) -> None:
        until = now_ns() + budget_ns
        self._retire_idle()
        while (now := now_ns()) < until and len(self._records) < ROOM:
            if now >= self._next_sweep:
                self._sweep(now)
            self._wake_thinkers(now)
            self._begin_what_is_due(now)
            if self._accepting and self._idle and not self._has_messages():
                return
            if not self._accepting and not self._in_flight:
                return
            for fd, event in self._epoll.poll(self._poll_timeout(now, until)):
                self._handle_event(fd, event)

    def _handle_event(self, fd: int, event: int) -> None:
        index = self._by_fd.get(fd)
        if index is None:
            return
        if event & select.EPOLLOUT:
            self._send(index, b"")
        if event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) and index in self._all:
            self._receive(index)

    def _poll_timeout(self, now: int, until: int) -> float:
        wake = until
        if self._thinking:
            wake = min(wake, self._all[self._thinking[0]].wake)
        if self._limit_ns:
            wake = min(wake, self._next_sweep)
        if self._accepting and self._idle and (due := self._pace.due) is not None and self._has_messages():
            wake = min(wake, due)
        return max(wake - now, 0) / 1e9

    def _has_messages(self) -> bool:
        if not self._messages and self._blocks:
            self._messages.extend(self._blocks.popleft().operations())
        return bool(self._messages)

    def _begin_what_is_due(self, now: int) -> None:
        while self._idle and self._accepting and self._has_messages():
            due = self._pace.take(now) if self._is_paced else now
            if due is None:
                return
            self._begin(self._idle.popleft(), due, now)
            now = now_ns()

    def _begin(self, index: int, due: int, now: int) -> None:
        connection = self._all[index]
        connection.kind, messages = self._messages.popleft()
        connection.due, connection.start, connection.epoch = due, now, self._epoch
        connection.rows, connection.sqlstate, connection.cleaning = 0, b"", False
        connection.state = ConnectionState.BUSY
        connection.steps = deque(messages)
        self._in_flight += 1
        self._send(index, connection.steps.popleft())

    def _send(self, index: int, data: bytes) -> None:
        """Send the bytes that the socket did not accept before, then ``data``."""
        connection = self._all[index]
        pending = connection.unsent + data
        if connection.unsent and data:  # the server answered early; epoll reports when the socket accepts more
            connection.unsent = pending
            return
        try:
            sent = connection.socket.send(pending) if pending else 0
        except _WOULD_BLOCK:
            sent = 0
        except OSError:
            self._lose(index, LOST)
            return
        was_blocked, connection.unsent = bool(connection.unsent), pending[sent:]
        if bool(connection.unsent) != was_blocked:
            events = select.EPOLLIN | (select.EPOLLOUT if connection.unsent else 0)
            self._epoll.modify(connection.socket.fileno(), events)

    def _receive(self, index: int) -> None:
        connection = self._all[index]
        while True:
            try:
                data = connection.socket.recv(_READ_SIZE)
            except _WOULD_BLOCK:
                return
            except OSError:
                data = b""
            if not data:
                self._lose(index, LOST)
                return
            rows = -1 if connection.unread else rows_of_whole_answer(data)
            if rows >= 0:
                connection.rows += rows
                self._ready(index, connection, b"I")
            else:
                connection.unread += data
                self._read(index, connection)
            pending = isinstance(connection.socket, SSLSocket) and connection.socket.pending()
            if not pending or connection.state in (ConnectionState.DEAD, ConnectionState.RETIRED):
                return

    def _read(self, index: int, connection: _Connection) -> None:
        try:
            self._read_messages(index, connection)
        except ConnectionError:
            self._lose(index, LOST)

    def _read_messages(self, index: int, connection: _Connection) -> None:
        for message in pgwire.split(connection.unread):
            match message.type:
                case b"C":
                    connection.rows += rows_of(message.body)
                case b"E":
                    self._note_error(connection, pgwire.error_of(message.body))
                case b"Z":
                    self._ready(index, connection, message.body)
            if connection.state in (ConnectionState.DEAD, ConnectionState.RETIRED):
                return

    def _note_error(self, connection: _Connection, error: pgwire.PostgresError) -> None:
        connection.sqlstate = connection.sqlstate or error.sqlstate.encode()
        self._error_messages.setdefault(error.sqlstate, error.message)

    def error_message(self, sqlstate: str) -> str:
        return self._error_messages.get(sqlstate, "")

    def _ready(self, index: int, connection: _Connection, transaction: bytes) -> None:
        if connection.state is not ConnectionState.BUSY:
            return
        failed = bool(connection.sqlstate)
        if not failed and connection.steps:
            self._send(index, connection.steps.popleft())
        elif failed and transaction != b"I" and not connection.cleaning:
            connection.cleaning = True
            self._send(index, _ROLLBACK)
        else:
            now = now_ns()
            self._finish(index, connection, FAILED if failed else OK, now)
            self._after(index, connection, now)

    def _finish(self, index: int, connection: _Connection, outcome: int, now: int) -> None:
        duration = now - connection.start
        self._records.append(
            (
                connection.due,
                connection.start,
                duration,
                index,
                min(connection.rows, MOST_ROWS),
                connection.kind,
                outcome,
                connection.epoch,
                connection.sqlstate,
            )
        )
        self._in_flight -= 1
        self._failed += outcome != OK

    def _after(self, index: int, connection: _Connection, now: int) -> None:
        if self._think_ns and not self._is_paced and not connection.retiring:
            connection.state, connection.wake = ConnectionState.THINKING, now + self._think_ns
            self._thinking.append(index)
        elif not self._is_paced and not connection.retiring and not self._idle and self._accepting and self._has_messages():
            self._begin(index, now, now)
        else:
            self._make_idle(index)

    def _make_idle(self, index: int) -> None:
        connection = self._all[index]
        if connection.retiring:
            self._drop(index, ConnectionState.RETIRED)
            return
        connection.state = ConnectionState.IDLE
        if self._hottest_first:
            self._idle.appendleft(index)
        else:
            self._idle.append(index)

    def _lose(self, index: int, outcome: int) -> None:
        connection = self._all[index]
        if connection.state is ConnectionState.BUSY:
            self._finish(index, connection, outcome, now_ns())
        self._drop(index, ConnectionState.DEAD)

    def _drop(self, index: int, state: ConnectionState) -> None:
        connection = self._all.pop(index)
        fd = connection.socket.fileno()
        if fd >= 0:
            self._epoll.unregister(fd)
            del self._by_fd[fd]
        connection.state = state
        for queue in (self._idle, self._thinking):
            if index in queue:
                queue.remove(index)
        self._gone.append((index, state))

    def _retire_idle(self) -> None:
        for index in [index for index in self._idle if self._all[index].retiring]:
            self._drop(index, ConnectionState.RETIRED)

    def _wake_thinkers(self, now: int) -> None:
        while self._thinking and self._all[self._thinking[0]].wake <= now:
            self._make_idle(self._thinking.popleft())

    def _sweep(self, now: int) -> None:
        self._next_sweep = now + _SWEEP_NS
        if not self._limit_ns:
            return
        late = [i for i, each in self._all.items() if each.state is ConnectionState.BUSY and now - each.start > self._limit_ns]
        for index in late:
            self._lose(index, TIMED_OUT)
