"""The measurement that every queue runs in its own process: push one by one, push in batches, process all jobs.

python -m kit.pool_peers_postgres pgqueuer '{"url": …, "singles": 1000, …}' prints one JSON object. Needs only the standard
library, because it runs in the other queue's environment. The time to process counts from when a worker, connected and with
everything imported, is told to begin, until the last call of its handler.
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
    """What one queue has to do in its run: how many jobs to push, and how many to process."""

    url: str
    setting: int | str = 1  #: the setting under test: batch size, concurrency or kind of worker
    singles: int = 0  #: pushed one by one
    batched: int = 0  #: pushed in batches, once for each size
    batches: tuple[int, ...] = (1000, 100)
    jobs: int = 0  #: to be processed


class Tally:
    """Counts calls of the handler, from any thread."""

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
        """Wait until all jobs are processed, for workers that run in threads."""
        await asyncio.to_thread(self.full.wait)


class SharedTally(Tally):
    """Counts calls of the handler from any process; without their CPU time."""

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


TALLY = Tally()  #: of this process; used by handlers that queues import by name
SHARED = SharedTally()  #: for handlers that run in child processes


def noop(n: int = 0) -> None:
    """Do nothing: the job that is pushed and processed."""
    TALLY.one()


def shared_noop(n: int = 0) -> None:
    """Do nothing: the job for queues whose workers run jobs in child processes."""
    SHARED.one()


class Peer(Protocol):
    """A queue to measure. Opening it is not timed."""

    async def open(self, course: Course) -> None: ...

    async def push_one(self, n: int) -> None: ...

    async def push_many(self, first: int, count: int) -> None:
        """Push many jobs with the queue's batch call. Raises NoBatches if it has none."""
        ...

    async def work(self, course: Course, tally: Tally) -> None:
        """Process jobs until the tally is full. It need not return: the process is ended then."""
        ...


class NoBatches(Exception):
    """The queue has no batch push."""


async def run_course(peer: Peer, course: Course, tally: Tally) -> None:
    """Run all parts and print the jobs per second of each. Ends the process, even if the queue's worker does not return."""
    await peer.open(course)
    await _push(peer, course, tally.found)
    if course.jobs:
        threading.Thread(target=_tell_when_full, args=(tally,), daemon=True).start()
        tally.begin(course.jobs)
        await peer.work(course, tally)
        if not tally.full.wait(5):
            raise SystemExit(f"expected {tally.wanted} processed jobs; the worker exited before that")
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
    """End this process shortly after the last job, even if the worker does not return."""
    tally.full.wait()
    time.sleep(0.5)
    _tell(tally)


_TELLING = threading.Lock()


def _tell(tally: Tally) -> None:
    with _TELLING:
        print(json.dumps(tally.found), flush=True)
        os._exit(0)


def main(peers: Mapping[str, Callable[[], Peer]], tally: Tally = TALLY) -> None:
    """The command line of a module of queues: the queue's name, and the course as JSON."""
    name, given = sys.argv[1:]
    course = Course(**json.loads(given))
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    _runner()(run_course(peers[name](), course, tally))


def _end_with(parent: int) -> None:
    """End this process when the benchmark that started it has ended."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    """Return the function that runs a coroutine: uvloop's if it is installed, otherwise asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run
