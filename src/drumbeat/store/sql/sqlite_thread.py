"""A thread that owns a SQLite connection and runs the operations it is given, in batches."""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from drumbeat.core.errors import StoreUnavailable

_MOST_AT_ONCE = 128  #: operations in one batch


@dataclass(frozen=True, slots=True)
class QueuedCall:
    """A call that waits for the database thread, and the future that gets its result."""

    work: Callable[[sqlite3.Connection], Any]
    waiter: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop


@dataclass(slots=True)
class CallOutcome:
    """What a call returned or raised."""

    call: QueuedCall
    result: Any = None
    error: BaseException | None = None


class DatabaseThread:
    """A thread with its own database connection, which runs queued operations in batches."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], sqlite3.Connection],
        perform: Callable[[sqlite3.Connection, Sequence[QueuedCall]], list[CallOutcome]],
    ) -> None:
        self._name = name
        self._connect = connect
        self._perform = perform
        self._queue: queue.SimpleQueue[QueuedCall | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended: Future[None] = Future()  #: done when the thread has closed its connection

    async def open(self) -> None:
        opened = asyncio.get_running_loop().create_future()
        call = QueuedCall(lambda connection: None, opened, asyncio.get_running_loop())
        self._ended = Future()
        self._thread = threading.Thread(target=self._work, args=(call,), name=f"sqlite-{self._name}", daemon=True)
        self._thread.start()
        await opened

    async def close(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.wrap_future(self._ended)  # needs no other thread, so it also works while the process exits
            self._thread.join()
            self._thread = None

    async def submit(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        if self._thread is None:
            raise StoreUnavailable("this store is closed; open it before use")
        loop = asyncio.get_running_loop()
        call = QueuedCall(work, loop.create_future(), loop)
        self._queue.put(call)
        return await call.waiter

    def _work(self, opened: QueuedCall) -> None:
        try:
            self._serve(opened)
        finally:
            self._ended.set_result(None)

    def _serve(self, opened: QueuedCall) -> None:
        try:
            connection = self._connect()
        except Exception as exc:
            _deliver([CallOutcome(opened, error=exc)])
            return
        _deliver([CallOutcome(opened)])
        try:
            while calls := self._next_batch():
                _deliver(self._perform(connection, calls))
        finally:
            connection.close()

    def _next_batch(self) -> list[QueuedCall]:
        """Wait for operations, and return the next batch; an empty batch means that the thread must end."""
        first = self._queue.get()
        if first is None:
            return []
        calls = [first]
        while len(calls) < _MOST_AT_ONCE:
            try:
                call = self._queue.get_nowait()
            except queue.Empty:
                break
            if call is None:
                self._queue.put(None)
                break
            calls.append(call)
        return calls


def _deliver(outcomes: Sequence[CallOutcome]) -> None:
    """Deliver each result to the future that waits for it, in the event loop of that future."""
    by_loop: dict[asyncio.AbstractEventLoop, list[CallOutcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome.call.loop, []).append(outcome)
    for loop, ready in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, ready)


def _settle(outcomes: Sequence[CallOutcome]) -> None:
    for outcome in outcomes:
        waiter = outcome.call.waiter
        if not waiter.done() and outcome.error is not None:
            waiter.set_exception(outcome.error)
        elif not waiter.done():
            waiter.set_result(outcome.result)
