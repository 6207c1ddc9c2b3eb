"""Both cores alike, against a server that is the other end of a socket pair."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from socket import socket, socketpair

import numpy as np
import pytest

from drumbeat.bench.driver import pgwire
from drumbeat.bench.driver.blocks import BlockMaker
from drumbeat.bench.driver.core import Core
from drumbeat.bench.driver.core_c import CCore, library
from drumbeat.bench.driver.core_py import PyCore
from drumbeat.bench.driver.records import FAILED, OK, RECORD, Records
from drumbeat.bench.model import KeyValue, Load, Operation, Statement
from drumbeat.bench.values import Draw

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
        deadline = time.monotonic() + 30
        while not happened():
            assert time.monotonic() < deadline
            self.core.run(PATIENCE)

    def answer(self, with_what: bytes) -> None:
        """Let an operation be sent, and answer it."""
        self.run_until(lambda: self.core.in_flight == 1)
        self.server.recv(65536)
        self.core.accept(False)
        self.server.sendall(with_what)
        self.run_until(lambda: self.core.in_flight == 0)


@pytest.fixture(params=["c", "python"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    if request.param == "c" and library() is None:
        pytest.skip("the compiled core was not built: no C compiler")
    core = CCore(4) if request.param == "c" else PyCore(4)
    core.feed(BlockMaker(WORK, Draw(slot=0, chance=np.random.default_rng(1), now_us=lambda: 0)).make(200))
    ours, theirs = socketpair()
    ours.setblocking(False)
    core.add(0, ours)
    yield Pair(core, theirs)
    core.close()
    ours.close()
    theirs.close()


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
