"""What every queue is put through, in a process of its own: push one by one, push in batches, work everything off.

python -m kit.pool_peers_postgres pgqueuer '{"url": …, "singles": 1000, …}' prints one JSON object. Needs only the standard
library, since it runs where a peer is installed. The clock of working runs from telling a worker to begin, connected and
imported, to its last call of the handler: the same for everyone.
"""

import asyncio
import itertools
import json
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One peer's task."""

    url: str
    setting: int | str = 1  #: what was swept: a batch, a concurrency, a kind of worker
    singles: int = 0  #: pushed one by one
    batched: int = 0  #: pushed in batches, once for each size
    batches: tuple[int, ...] = (1000, 100)
    jobs: int = 0  #: to be worked off


class Tally:
    """Calls of the handler, from whichever thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._began, self._cpu = 0.0, 0.0
        self.wanted = 0
        self.full = threading.Event()
        self.found: dict[str, float] = {}

    def begin(self, wanted: int) -> None:
        self.wanted = wanted
        self._cpu, self._began = time.process_time(), time.perf_counter()

    def one(self) -> None:
        if next(self._numbers) == self.wanted:
            self.found["client µs per job"] = (time.process_time() - self._cpu) / self.wanted * 1e6
            self._end()

    def _end(self) -> None:
        self.found["work"] = self.wanted / (time.perf_counter() - self._began)
        self.full.set()

    async def wait(self) -> None:
        """For workers in threads of their own."""
        await asyncio.to_thread(self.full.wait)


class SharedTally(Tally):
    """Calls of the handler, from whichever process; nothing is said of their CPU."""

    def __init__(self) -> None:
        super().__init__()
        self._count = multiprocessing.Value("q", 0)

    def begin(self, wanted: int) -> None:
        super().begin(wanted)
        threading.Thread(target=self._watch, daemon=True).start()

    def one(self) -> None:
        with self._count.get_lock():
            self._count.value += 1

    def _watch(self) -> None:
        while self._count.value < self.wanted:
            time.sleep(0.002)
        self._end()


TALLY = Tally()  #: of this process; handlers that are found by their name count here
SHARED = SharedTally()  #: for those that run in processes of their own


def noop(n: int = 0) -> None:
    """The job."""
    TALLY.one()


def shared_noop(n: int = 0) -> None:
    """The job, in a process of its own."""
    SHARED.one()


class Peer(Protocol):
    """A queue to be measured. Opening it is not measured."""

    async def open(self, course: Course) -> None: ...

    async def push_one(self, n: int) -> None: ...

    async def push_many(self, first: int, count: int) -> None:
        """One call of its own for many. Raises NoBatches where it has none."""
        ...

    async def work(self, course: Course, tally: Tally) -> None:
        """Work until the tally is full; it may go on for ever after that, since the process is ended then."""
        ...


class NoBatches(Exception):
    """This queue takes jobs one by one."""


async def run_course(peer: Peer, course: Course, tally: Tally) -> None:
    """The whole course; prints how many jobs a second each part took. Ends the process, whatever the peer's worker does."""
    await peer.open(course)
    await _push(peer, course, tally.found)
    if course.jobs:
        threading.Thread(target=_tell_when_full, args=(tally,), daemon=True).start()
        tally.begin(course.jobs)
        await peer.work(course, tally)
        if not tally.full.wait(5):
            raise SystemExit(f"expected {tally.wanted} jobs to be worked on; the worker left before that")
    _tell(tally)


async def _push(peer: Peer, course: Course, found: dict[str, float]) -> None:
    if course.singles:
        found["push one"] = course.singles / await _clocked(_singles(peer, course.singles))
    for batch in course.batches if course.batched else ():
        try:
            found[f"push {batch}"] = course.batched / await _clocked(_batches(peer, course.batched, batch))
        except NoBatches:
            await _singles(peer, course.batched)


async def _clocked(work: Coroutine[Any, Any, None]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def _singles(peer: Peer, count: int) -> None:
    for n in range(count):
        await peer.push_one(n)


async def _batches(peer: Peer, count: int, batch: int) -> None:
    for first in range(0, count, batch):
        await peer.push_many(first, min(batch, count - first))


def _tell_when_full(tally: Tally) -> None:
    """A worker that does not return is left a moment to, then this process ends."""
    tally.full.wait()
    time.sleep(0.5)
    _tell(tally)


_TELLING = threading.Lock()


def _tell(tally: Tally) -> None:
    with _TELLING:
        print(json.dumps(tally.found), flush=True)
        os._exit(0)


def main(peers: Mapping[str, Callable[[], Peer]], tally: Tally = TALLY) -> None:
    """The command line of a file of peers: its name, and the course as JSON."""
    name, given = sys.argv[1:]
    course = Course(**json.loads(given))
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    _runner()(run_course(peers[name](), course, tally))


def _end_with(parent: int) -> None:
    """A benchmark that was stopped leaves nobody behind."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    """The faster loop, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run
