"""Drives the C core and the Python core through the same chance events, and compares what each sends and records.

Every round has a seed of its own, printed when it begins; ``--seed N --rounds 1`` runs that round again. Time is simulated
(core_hooks.c), so that a round is the same each time, to the nanosecond. ``sanitize.py`` builds the library and runs this.
"""

import argparse
import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from select import epoll
from socket import MSG_DONTWAIT, SO_SNDBUF, SOL_SOCKET, socket, socketpair
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from drumbeat.bench.driver import core_c, core_py, pgwire
from drumbeat.bench.driver.blocks import MessageBlock
from drumbeat.bench.driver.core import ConnectionState, Core
from drumbeat.bench.driver.core_c import CCore
from drumbeat.bench.driver.core_py import PyCore
from drumbeat.bench.driver.records import RECORD

T = TypeVar("T")
START = 1_000_000_000_000  #: simulated nanoseconds
END_MARK = 255  #: the last byte of every message, and of nothing else
SIZES = ((1, 2), (1, 3, 40), (400,))  #: messages in a block; each round has one of these
STEPS = 150  #: in a round
BUDGETS = (1, 2, 3, 700, 2_000, 1_000_000, 60_000_000, 1_000_000_000)
RATES = (
    None,
    None,
    None,
    None,
    None,
    None,
    0,
    1,
    1_000,
    62_500,
    1_000_000_000,
)  #: each with a whole number of nanoseconds between two
SQLSTATES = ("22012", "40001", "40P01", "23505", "57P01", "XX000")
TAGS = (
    "SELECT 1",
    "SELECT 0",
    "INSERT 0 5",
    "UPDATE 12",
    "BEGIN",
    "COMMIT",
    "SELECT 99999999999999",
    "COPY 2147483647",
    "X 1y",
)
READ_SIZE = 1 << 18
SERVER_BUFFER = 8192  #: so that a core never finds more than one read can take

_received = memoryview(bytearray(READ_SIZE))


class SimulatedTime:
    """The Python core's clock: it moves when the core sleeps, and with every read."""

    def __init__(self, each_read_takes: int) -> None:
        self.now = START
        self.each_read_takes = each_read_takes

    def read(self) -> int:
        return self.now

    def pass_by_reading(self) -> None:
        self.now += self.each_read_takes


class SimulatedSleep:
    """An epoll that does not wait: where nothing has happened, the time has passed."""

    def __init__(self, real: epoll, clock: SimulatedTime) -> None:
        self._real = real
        self._clock = clock
        self.register, self.modify, self.unregister, self.close = real.register, real.modify, real.unregister, real.close

    def poll(self, seconds: float) -> list[tuple[int, int]]:
        events = self._real.poll(0)
        if not events:
            self._clock.now += max(1, round(seconds * 1e9))
        return events


class SlowSocket(socket):
    """A socket on which reading takes simulated time."""

    clock: SimulatedTime

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        self.clock.pass_by_reading()
        return super().recv(size, flags)


@dataclass(slots=True)
class Half:
    """One of the two cores, with its connections and the servers at their other ends."""

    core: Core
    clock: SimulatedTime | None  #: None: the C core's, which core_hooks.c keeps
    ours: dict[int, socket] = field(default_factory=dict)
    servers: dict[int, socket] = field(default_factory=dict)

    def connect(self, place: int, buffer: int) -> None:
        ours, server = socketpair()
        server.setsockopt(SOL_SOCKET, SO_SNDBUF, SERVER_BUFFER)
        if buffer:
            ours.setsockopt(SOL_SOCKET, SO_SNDBUF, buffer)
        if self.clock is not None:
            ours = SlowSocket(fileno=ours.detach())
            ours.clock = self.clock
        ours.setblocking(False)
        self.core.add(place, ours)
        self.ours[place], self.servers[place] = ours, server

    def let_go(self, place: int) -> None:
        self.ours.pop(place).close()
        self.servers.pop(place).close()

    def receive(self, place: int, most: int) -> bytes:
        """What the server finds; nothing where it has left."""
        try:
            return bytes(_received[: self.servers[place].recv_into(_received, most, MSG_DONTWAIT)])
        except OSError:
            return b""

    def answer(self, place: int, data: bytes) -> int:
        try:
            return self.servers[place].send(data, MSG_DONTWAIT)
        except OSError:
            return 0

    def close(self) -> None:
        self.core.close()
        for place in list(self.ours):
            self.let_go(place)


class Fuzzed:
    """What all rounds share: the hooks, what may be sent, and how much was."""

    def __init__(self, library: Path) -> None:
        core_c.LIBRARY = library
        loaded = core_c.library()
        assert loaded is not None, f"expected a compiled core at {library}"
        self.hooks: Any = loaded.short
        self.hooks.hooks_simulate.argtypes = (ctypes.c_int64, ctypes.c_int64)
        self.hooks.hooks_refuse_after.argtypes = (ctypes.c_int64,)
        self.hooks.hooks_now.restype = self.hooks.hooks_allocated.restype = ctypes.c_int64
        self.pool = np.random.default_rng(0).integers(0, END_MARK, 1 << 20, dtype=np.uint8)
        self.sent = self.answered = self.operations = 0


def at_the_end(values: NDArray[Any]) -> NDArray[Any]:
    """A copy that ends where its memory ends, in a piece large enough to be given back to the system's allocator."""
    memory = np.empty(max(4096, len(values)), dtype=values.dtype)
    memory[len(memory) - len(values) :] = values
    return memory[len(memory) - len(values) :]


def block(chance: Random, pool: NDArray[np.uint8], counts: Sequence[int] = (1,)) -> MessageBlock:
    count = chance.choice(counts)
    numbers = np.random.default_rng(chance.getrandbits(32))
    sizes = numbers.integers(1, 60, count)
    if chance.random() < 0.05:
        sizes[chance.randrange(count)] = chance.randint(1_000, 60_000)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.uint32)
    begin = chance.randrange(len(pool) - int(offsets[-1]))
    data = pool[begin : begin + int(offsets[-1])].copy()
    data[offsets[1:] - 1] = END_MARK
    more = (numbers.random(count) < chance.choice((0.0, 0.0, 0.5))).astype(np.uint8)
    kinds = numbers.integers(0, 6, count).astype(np.int16)
    return MessageBlock(at_the_end(data), at_the_end(offsets), at_the_end(kinds), at_the_end(more))


def answer(chance: Random) -> list[bytes]:
    """To one message: rows, notices, an error or none, and that the server is ready."""
    parts = [b"2\0\0\0\4"]
    for _ in range(chance.choice((0, 0, 1, 1, 3))):
        parts.append(pgwire.message(b"D", chance.choice((chance.randbytes(chance.randint(0, 300)), b"C\0\0\0\5\0Z\0\0\0\5I"))))
    if chance.random() < 0.1:
        parts.append(pgwire.message(chance.choice((b"N", b"S")), chance.randbytes(20)))
    if chance.random() < 0.08:
        state = chance.choice(SQLSTATES)
        parts.append(pgwire.message(b"E", b"SERROR\0C%b\0Mit was %b\0\0" % (state.encode(), state.encode())))
        parts.append(pgwire.message(b"Z", chance.choice((b"I", b"T", b"E"))))
    else:
        parts.append(pgwire.message(b"C", chance.choice(TAGS).encode() + b"\0"))
        parts.append(pgwire.message(b"Z", chance.choice((b"I", b"I", b"I", b"T"))))
    return parts


class Round:
    """One seed's events, on one core or on both."""

    def __init__(self, fuzzed: Fuzzed, seed: int) -> None:
        self._fuzzed = fuzzed
        self._chance = chance = Random(seed)
        self._places = chance.choice((1, 2, 5, 16, 40))
        reading = chance.choice((0, 1, 1, 700, 700))
        fuzzed.hooks.hooks_simulate(START, reading)
        self._c = Half(CCore(self._places), None)
        self._halves = [self._c]
        self._compares = chance.random() < 0.9  #: what a round on its own does, Python cannot: run out of memory, read a lot
        if self._compares:
            clock = SimulatedTime(reading)
            core_py.now_ns = clock.read
            python = PyCore(self._places)
            python._epoll = SimulatedSleep(python._epoll, clock)  # type: ignore[assignment]
            self._halves.append(Half(python, clock))
        settings = (chance.choice((0, 0, 3_000_000_000)), chance.choice((0, 0, 0, 2_000_000)), chance.random() < 0.5)
        self._each(lambda half: half.core.configure(*settings))
        self._buffer = chance.choice((0, 4096))
        self._counts = chance.choice(SIZES)
        self._eager = chance.choice((0.3, 0.9))  #: how often a server reads, and answers
        self._burst = chance.choice((1, 2, 8, 20))  #: answers at once, of a server that does not wait to be asked
        self._rate: float | None = None
        self._answers = [answer(chance) for _ in range(60)]
        self._taken = set[int]()
        self._asked = set[int]()
        self._unanswered: dict[int, tuple[bytes, int]] = {}  #: what remains of an answer, and of how many messages it is
        self._orders = {
            self._connect: 8,
            self._retire: 1,
            self._accept: 2,
            self._set_rate: 1,
            self._set_epoch: 2,
            self._drop_overdue: 1,
            self._give_up: 0.2,
            self._cut: 1,
            self._babble: 0.2,
        }

    def _each(self, ask: Callable[[Half], T]) -> T:
        """Ask each core; they must answer the same."""
        answers = [ask(half) for half in self._halves]
        assert answers[0] == answers[-1], f"the C core: {answers[0]!r:.2000}, the Python core: {answers[-1]!r:.2000}"
        return answers[0]

    def run(self) -> None:
        self._each(lambda half: half.core.accept(True))
        for _ in range(self._places):
            self._connect()
        for _ in range(STEPS):
            if self._chance.random() < 0.4:
                self._chance.choices(list(self._orders), list(self._orders.values()))[0]()
            self._step()
        self._end()

    def _step(self) -> None:
        self._feed()
        budget = self._chance.choice(BUDGETS)
        self._each(lambda half: half.core.run(budget))
        self._look()
        self._serve()

    def _feed(self) -> None:
        while self._each(lambda half: half.core.blocks()) < 2 and self._chance.random() < 0.9:
            self._feed_one()
        if self._chance.random() < 0.01 and self._each(lambda half: half.core.blocks()) == 2:
            too_many = block(self._chance, self._fuzzed.pool)
            assert self._each(lambda half: refused(lambda: half.core.feed(too_many)))

    def _feed_one(self) -> None:
        fed = block(self._chance, self._fuzzed.pool, self._counts)
        self._each(lambda half: half.core.feed(fed))

    def _look(self) -> None:
        """Compare the cores' figures, records and news."""
        self._each(lambda half: (half.core.in_flight, half.core.failed, half.core.backlog, half.core.blocks()))
        self._each(self._time)
        raw = [half.core.take() for half in self._halves]
        self._fuzzed.operations += len(raw[0]) // RECORD.itemsize
        if raw[0] != raw[-1]:
            first, last = (by_connection(each) for each in raw)
            assert first == last, next(pair for pair in zip(first, last, strict=False) if pair[0] != pair[1])
        news = self._each(lambda half: sorted(half.core.collect()))
        assert len({place for place, _ in news}) == len(news), f"told twice: {news}"
        for place, state in news:
            assert state in (ConnectionState.DEAD, ConnectionState.RETIRED)
            self._read(place, READ_SIZE)
            self._each(lambda half, place=place: half.let_go(place))  # type: ignore[misc]
            self._taken.discard(place)
            self._asked.discard(place)
            self._unanswered.pop(place, None)

    def _time(self, half: Half) -> int:
        return int(self._fuzzed.hooks.hooks_now()) if half.clock is None else half.clock.now

    def _serve(self) -> None:
        """The servers read some of what came, and answer some of that, or a part of it."""
        for place in sorted(self._taken):
            if self._chance.random() < self._eager:
                self._read(place, self._chance.choice((READ_SIZE, READ_SIZE, 100)))
            if place in self._asked and self._chance.random() < self._eager:
                self._answer(place)

    def _read(self, place: int, most: int) -> None:
        data = self._each(lambda half: half.receive(place, most))
        self._fuzzed.sent += data.count(END_MARK)
        if data:
            self._asked.add(place)

    def _answer(self, place: int) -> None:
        data, messages = self._unanswered.pop(place, (b"", 0))
        if not data:
            count = 1 if self._rate is not None else self._chance.randint(1, self._burst)
            chosen = self._chance.choices(self._answers, k=count)
            data, messages = b"".join(map(b"".join, chosen)), sum(map(len, chosen))
        part = data if self._chance.random() < 0.8 else data[: self._chance.randint(1, len(data))]
        rest = data[self._each(lambda half: half.answer(place, part)) :]
        if rest:
            self._unanswered[place] = (rest, messages)
        else:
            self._fuzzed.answered += messages
            self._asked.discard(place)

    def _connect(self) -> None:
        free = [place for place in range(self._places) if place not in self._taken]
        if not free:
            assert self._each(lambda half: refused(lambda: half.connect(self._places - 1, 0)))
            return
        place = self._chance.choice(free)
        self._each(lambda half: half.connect(place, self._buffer))
        self._taken.add(place)

    def _retire(self) -> None:
        place = self._chance.randint(0, self._places)  # the last of these is none
        self._each(lambda half: half.core.retire(place))

    def _accept(self) -> None:
        accepting = self._chance.random() < 0.8
        self._each(lambda half: half.core.accept(accepting))

    def _set_rate(self) -> None:
        self._rate = self._chance.choice(RATES)
        self._each(lambda half: half.core.set_rate(self._rate))

    def _drop_overdue(self) -> None:
        self._each(lambda half: half.core.drop_overdue())

    def _set_epoch(self) -> None:
        epoch = self._chance.randint(0, 300)
        self._each(lambda half: half.core.set_epoch(epoch))

    def _give_up(self) -> None:
        self._each(lambda half: half.core.give_up())

    def _cut(self) -> None:
        """A server goes away, in the middle of whatever it does."""
        if self._taken:
            place = self._chance.choice(sorted(self._taken))
            self._each(lambda half: half.servers[place].close())
        if not self._compares:
            self._fuzzed.hooks.hooks_refuse_after(self._chance.randint(0, 5))

    def _babble(self) -> None:
        """A server says what is not in PostgreSQL's protocol; on its own, the C core gets a lot of it."""
        silent = sorted(self._taken - set(self._unanswered))
        if not silent:
            return
        place = self._chance.choice(silent)
        babble = b"Z\0\0\0\3" if self._compares else self._chance.randbytes(100_000)
        self._each(lambda half: half.answer(place, babble))

    def _end(self) -> None:
        self._each(lambda half: half.core.accept(False))
        self._each(lambda half: half.core.give_up())
        self._look()
        assert self._each(lambda half: half.core.in_flight) == 0
        for state in SQLSTATES:
            self._each(lambda half, state=state: half.core.error_message(state))  # type: ignore[misc]
        self._fuzzed.hooks.hooks_refuse_after(-1)
        self._each(lambda half: half.close())
        assert self._fuzzed.hooks.hooks_allocated() == 0, "the C core did not give back all its memory"


def refused(ask: Callable[[], None]) -> bool:
    try:
        ask()
    except (OSError, ValueError):
        return True
    return False


def by_connection(raw: bytes) -> list[tuple[object, ...]]:
    """Records, each connection's in their order: which of several are given up first is each core's own."""
    records = np.frombuffer(raw, dtype=RECORD)
    return list(records[np.argsort(records["connection"], kind="stable")].tolist())


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("library", type=Path, help="the core, built with core_hooks.c")
    options.add_argument("--seed", type=int, default=1, help="of the first round; each round after it takes the next number")
    options.add_argument("--messages", type=int, default=100_000, help="go on until the core has sent and read this many")
    options.add_argument("--rounds", type=int, help="end after this many rounds")
    chosen = options.parse_args(arguments)
    fuzzed, seed, began = Fuzzed(chosen.library), chosen.seed, time.process_time()
    while fuzzed.sent + fuzzed.answered < chosen.messages and (chosen.rounds is None or seed - chosen.seed < chosen.rounds):
        print(f"seed {seed}", flush=True)
        Round(fuzzed, seed).run()
        seed += 1
    print(
        f"clean: {fuzzed.sent + fuzzed.answered:,} messages ({fuzzed.sent:,} sent, {fuzzed.answered:,} in answers) of "
        f"{fuzzed.operations:,} operations in {seed - chosen.seed:,} rounds, {time.process_time() - began:.0f} s of CPU"
    )


if __name__ == "__main__":
    main()
