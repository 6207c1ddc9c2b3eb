"""Both cores alike, against a server that is the other end of a socket pair."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from socket import MSG_DONTWAIT, socket, socketpair

import numpy as np
import pytest

from drumbeat.bench.driver import pgwire
from drumbeat.bench.driver.blocks import BlockMaker, MessageBlock
from drumbeat.bench.driver.core import ConnectionState, Core
from drumbeat.bench.driver.core_c import CCore, library
from drumbeat.bench.driver.core_py import PyCore
from drumbeat.bench.driver.records import FAILED, LOST, OK, RECORD, Records
from drumbeat.bench.model import KeyValue, Load, Operation, Statement
from drumbeat.bench.values.draw import Draw

WORK = Load(
    name="x",
    operations=(Operation(kind="A", weight=100, statements=(Statement(sql="SELECT $1", values=(KeyValue(low=1, high=9),)),)),),
)
BIND_COMPLETE = b"2\x00\x00\x00\x04"
READY = b"Z\x00\x00\x00\x05I"
WELL = BIND_COMPLETE + b"C\x00\x00\x00\x0dSELECT 1\x00" + READY
WRONG = pgwire.message(b"E", b"SERROR\x00C22012\x00\x00") + READY
PATIENCE = 5_000_000  #: nanoseconds in the core at a time


@dataclass(slots=True)
class Pair:
    core: Core
    server: socket

    def run_until(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not happened():
            assert time.monotonic() < deadline
            self.core.run(PATIENCE)

    def answer_one(self) -> None:
        """Let an operation be sent, and answer it; the next one may begin."""
        self.run_until(self.is_asked)
        self.server.sendall(WELL)

    def is_asked(self) -> bool:
        return bool(self.received())

    def received(self) -> bytes:
        """What the server finds."""
        try:
            return self.server.recv(65536, MSG_DONTWAIT)
        except BlockingIOError:
            return b""

    def answer(self, with_what: bytes) -> None:
        """Let an operation be sent, and answer it."""
        self.run_until(lambda: self.core.in_flight == 1)
        self.server.recv(65536)
        self.core.accept(False)
        self.server.sendall(with_what)
        self.run_until(lambda: self.core.in_flight == 0)


@pytest.fixture(params=["c", "python"])
def hungry(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A core that was fed nothing yet."""
    if request.param == "c" and library() is None:
        pytest.skip("the compiled core was not built: no C compiler")
    core = CCore(4) if request.param == "c" else PyCore(4)
    ours, theirs = socketpair()
    ours.setblocking(False)
    core.add(0, ours)
    yield Pair(core, theirs)
    core.close()
    ours.close()
    theirs.close()


@pytest.fixture
def pair(hungry: Pair) -> Pair:
    hungry.core.feed(BlockMaker(WORK, Draw(slot=0, chance=np.random.default_rng(1), now_us=lambda: 0)).make(20_000))
    return hungry


def taken(core: Core) -> Records:
    return np.frombuffer(core.take(), dtype=RECORD)


def test_operations_are_recorded_once_and_failures_are_counted(pair: Pair) -> None:
    pair.core.accept(True)
    pair.answer(WELL)
    well = taken(pair.core)
    assert (well["outcome"].tolist(), well["rows"].tolist(), pair.core.failed) == ([OK], [1], 0)

    pair.core.accept(True)
    pair.answer(WRONG)
    wrong = taken(pair.core)
    assert (wrong["outcome"].tolist(), wrong["sqlstate"].tolist(), pair.core.failed) == ([FAILED], [b"22012"], 1)
    assert len(taken(pair.core)) == 0


def numbered(number: int) -> MessageBlock:
    """A block of one operation, which is its number."""
    text = np.frombuffer(b"%08d" % number, dtype=np.uint8)
    return MessageBlock(text, np.asarray([0, 8], np.uint32), np.zeros(1, np.int16), np.zeros(1, np.uint8))


def test_blocks_are_sent_in_the_order_they_were_fed_wherever_a_run_ends(hungry: Pair) -> None:
    fed, sent, budgets = 0, b"", itertools.cycle(range(1_000, 40_000, 700))
    hungry.core.accept(True)
    while len(sent) < 8 * 3000:
        while hungry.core.blocks() < 2:
            hungry.core.feed(numbered(fed))
            fed += 1
        hungry.core.run(next(budgets))
        if new := hungry.received():
            sent += new
            hungry.server.sendall(WELL)

    assert [int(sent[at : at + 8]) for at in range(0, len(sent), 8)] == list(range(len(sent) // 8))


def test_a_third_block_is_refused_and_the_two_that_wait_are_kept(hungry: Pair) -> None:
    for number in (0, 1):
        hungry.core.feed(numbered(number))

    with pytest.raises(ValueError, match="at most one queued block"):
        hungry.core.feed(numbered(2))

    assert hungry.core.blocks() == 2


def test_a_place_is_not_given_to_a_second_connection_before_its_end_was_told(pair: Pair) -> None:
    def add_another() -> None:
        another, its_server = socketpair()
        with another, its_server, pytest.raises(OSError, match="connection 0"):
            pair.core.add(0, another)

    add_another()
    pair.server.close()
    pair.core.accept(True)
    pair.run_until(lambda: pair.core.failed == 1)
    add_another()

    assert [*pair.core.collect()] == [(0, ConnectionState.DEAD)]
    closed(*connected(pair.core, 0))


def test_an_operation_belongs_to_the_epoch_in_which_it_began(pair: Pair) -> None:
    for began, ended in ((1, 2), (3, 4)):
        pair.core.set_epoch(began)
        pair.core.accept(True)
        pair.run_until(pair.is_asked)
        pair.core.accept(False)
        pair.core.set_epoch(ended)
        pair.server.sendall(WELL)
        pair.run_until(lambda: pair.core.in_flight == 0)

    assert taken(pair.core)["epoch"].tolist() == [1, 3]


def test_one_that_is_lost_before_all_was_sent_is_told_once(hungry: Pair) -> None:
    size = 10_000_000
    data = np.zeros(size, np.uint8)
    hungry.core.feed(MessageBlock(data, np.asarray([0, size], np.uint32), np.zeros(1, np.int16), np.zeros(1, np.uint8)))
    hungry.core.accept(True)
    hungry.run_until(lambda: hungry.core.in_flight == 1)
    hungry.server.close()
    hungry.run_until(lambda: hungry.core.in_flight == 0)

    assert taken(hungry.core)["outcome"].tolist() == [LOST]
    assert [*hungry.core.collect()] == [(0, ConnectionState.DEAD)]


def test_an_answer_before_all_was_sent_does_not_change_the_order_of_what_is_sent(hungry: Pair) -> None:
    size = 4_000_000
    data = np.frombuffer(b"a" * size + b"b" * size, np.uint8)
    hungry.core.feed(
        MessageBlock(data, np.asarray([0, size, 2 * size], np.uint32), np.zeros(2, np.int16), np.zeros(2, np.uint8))
    )
    hungry.core.accept(True)
    hungry.run_until(lambda: hungry.core.in_flight == 1)
    hungry.server.sendall(WELL)

    sent = b""
    while len(sent) < 2 * size:
        hungry.core.run(PATIENCE)
        sent += hungry.received()

    assert sent == data.tobytes()


def test_a_row_may_hold_the_bytes_of_an_answer(pair: Pair) -> None:
    first = BIND_COMPLETE + pgwire.message(b"D", WELL)
    pair.core.accept(True)
    pair.run_until(pair.is_asked)
    pair.server.sendall(first)
    pair.core.run(PATIENCE)

    assert len(taken(pair.core)) == 0
    pair.server.sendall(pgwire.message(b"C", b"SELECT 1\0") + READY)
    pair.run_until(pair.is_asked)
    assert taken(pair.core)["rows"].tolist() == [1]


def test_a_server_that_does_not_speak_the_protocol_is_lost(pair: Pair) -> None:
    pair.core.accept(True)
    pair.answer(b"C\0\0\0\3")

    assert taken(pair.core)["outcome"].tolist() == [LOST]
    assert [*pair.core.collect()] == [(0, ConnectionState.DEAD)]


@pytest.mark.parametrize(
    ("tag", "rows"), [("SELECT 5", 5), ("INSERT 0 7", 7), ("BEGIN", 0), ("COPY 99999999999999999999", 2**31 - 1), ("X 1y", 0)]
)
def test_rows_are_the_number_that_ends_the_tag(pair: Pair, tag: str, rows: int) -> None:
    pair.core.accept(True)
    pair.answer(BIND_COMPLETE + pgwire.message(b"C", tag.encode() + b"\0") + READY)

    assert taken(pair.core)["rows"].tolist() == [rows]


def test_what_is_due_is_a_backlog_only_while_every_connection_is_busy(pair: Pair) -> None:
    pair.core.set_rate(1000)
    pair.core.accept(True)
    assert pair.core.backlog == 0, "a connection is free: nobody waits for one"

    pair.run_until(lambda: pair.core.in_flight == 1)
    pair.run_until(lambda: pair.core.backlog >= 10)


def test_nothing_is_owed_for_the_time_before_operations_may_begin(pair: Pair) -> None:
    pair.core.set_rate(1_000_000)
    accepted = time.monotonic_ns()
    pair.core.accept(True)
    pair.answer(WELL)

    assert taken(pair.core)["due"][0] >= accepted


def test_at_a_rate_of_nothing_nothing_begins_and_without_a_rate_all_does(pair: Pair) -> None:
    pair.core.set_rate(0)
    pair.core.accept(True)
    pair.core.run(PATIENCE)
    assert (pair.core.in_flight, pair.core.backlog) == (0, 0)

    pair.core.set_rate(None)
    pair.run_until(lambda: pair.core.in_flight == 1)


@pytest.mark.parametrize("again", [1000, 200, 0])
def test_what_is_due_stays_so_whatever_rate_is_set(pair: Pair, again: float) -> None:
    pair.core.set_rate(1000)
    pair.core.accept(True)
    pair.run_until(lambda: pair.core.backlog >= 10)
    pair.core.set_rate(again)

    for _ in range(11):
        pair.answer_one()
    pair.core.accept(False)
    pair.run_until(lambda: pair.core.in_flight == 0 or pair.is_asked())

    dues = taken(pair.core)["due"]
    assert len(dues) >= 10
    assert np.abs(np.diff(dues) - 1_000_000).max() <= 1, "each as it was due, none left out"


def test_an_operation_that_is_sent_late_tells_when_it_was_due_and_when_it_was_sent(pair: Pair) -> None:
    pair.core.set_rate(1000)
    pair.core.accept(True)
    pair.run_until(lambda: pair.core.backlog >= 10)
    released = time.monotonic_ns()
    for _ in range(2):
        pair.answer_one()
    pair.run_until(lambda: pair.is_asked())

    late = taken(pair.core)[1]
    assert late["due"] < released <= late["start"]


def test_when_nothing_more_becomes_due_the_backlog_comes_to_an_end(pair: Pair) -> None:
    pair.core.set_rate(1000)
    pair.core.accept(True)
    pair.run_until(lambda: pair.core.backlog >= 5)
    pair.core.set_rate(0)
    for _ in range(pair.core.backlog + 1):
        pair.answer_one()
    pair.run_until(lambda: pair.core.in_flight == 0)

    assert pair.core.backlog == 0
    pair.core.run(PATIENCE)
    assert pair.core.in_flight == 0


def test_what_is_forgiven_is_owed_no_more(pair: Pair) -> None:
    pair.core.set_rate(1000)
    pair.core.accept(True)
    pair.run_until(lambda: pair.core.backlog >= 5)
    pair.core.set_rate(0.001)
    assert pair.core.backlog >= 5

    pair.core.drop_overdue()

    assert pair.core.backlog <= 1  # the first at the new rate may have become due since


def test_connections_think_only_where_operations_have_no_time_of_their_own(pair: Pair) -> None:
    pair.core.configure(0, 3_600_000_000_000, False)
    pair.core.set_rate(1000)
    pair.core.accept(True)

    pair.answer_one()
    pair.run_until(pair.is_asked)

    assert pair.core.in_flight == 1, "the next operation did not wait for an hour of thinking"


def test_one_that_is_lost_while_it_thinks_takes_nobody_along(pair: Pair) -> None:
    think = 500_000_000
    pair.core.configure(0, think, False)
    others = [connected(pair.core, index) for index in (1, 2, 3)]
    servers = [pair.server, *(theirs for _, theirs in others)]
    pair.core.accept(True)
    pair.run_until(lambda: pair.core.in_flight == 4)
    for server in servers:
        server.recv(65536)
        server.sendall(WELL)
    pair.run_until(lambda: pair.core.in_flight == 0)
    servers[1].close()
    lost: list[tuple[int, ConnectionState]] = []
    while not lost:
        pair.core.run(PATIENCE)
        lost = [*pair.core.collect()]
    again = connected(pair.core, 1)

    pair.run_until(lambda: pair.core.in_flight == 4)

    assert lost == [(1, ConnectionState.DEAD)]
    for each in (*others, again):
        closed(*each)


def test_an_idle_one_that_is_lost_takes_no_operation_along(pair: Pair) -> None:
    ours, theirs = connected(pair.core, 1)
    pair.core.set_rate(10)
    pair.core.accept(True)
    other = Pair(pair.core, theirs)
    pair.run_until(lambda: is_asked_alone(pair, other))
    theirs.close()
    pair.server.sendall(WELL)

    for _ in range(2):
        pair.answer_one()
    pair.core.accept(False)
    pair.run_until(lambda: pair.core.in_flight == 0)

    assert np.abs(np.diff(np.sort(taken(pair.core)["due"])) - 100_000_000).max() <= 1
    closed(ours)


def is_asked_alone(one: Pair, other: Pair) -> bool:
    """Whether only the first connection waits for an answer. If both do, as on a slow machine, both are answered."""
    asked = [each.is_asked() for each in (one, other)]
    if asked == [True, False] and one.core.in_flight == 1:
        return True
    for each in [pair for pair, is_asked in zip((one, other), asked, strict=True) if is_asked]:
        each.server.sendall(WELL)
    return False


def connected(core: Core, index: int) -> tuple[socket, socket]:
    """One more connection, and the server's end of it."""
    ours, theirs = socketpair()
    ours.setblocking(False)
    core.add(index, ours)
    return ours, theirs


def closed(*sockets: socket) -> None:
    for each in sockets:
        each.close()
