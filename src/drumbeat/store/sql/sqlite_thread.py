"""A thread that owns a SQLite connection and runs the operations it is given, in batches."""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from drumbeat.core.errors import StoreUnavailable

_MOST_AT_ONCE = 128  #: operations in one batch
_CLOSE_WITHIN = 2.0  #: seconds in which a thread may finish its operations after ``close``; then its statements are interrupted
_INTERRUPT_EVERY = 0.05  #: seconds between interrupts, since each ends only the statement that runs


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


class BrokenConnection(Exception):
    """Raised by ``perform`` if its connection must be replaced, since its transaction could not be rolled back."""

    def __init__(self, outcomes: list[CallOutcome]) -> None:
        super().__init__("the connection cannot be used again")
        self.outcomes = outcomes


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
        self._ended: Future[None] | None = None  #: done when the last thread has closed its connection
        self._connection: sqlite3.Connection | None = None
        self._disconnecting = threading.Lock()  #: held while the connection is closed, or a statement of it is interrupted
        self._is_hurried = False  #: whether the operations that have not begun are refused, because ``close`` has waited enough

    async def open(self) -> None:
        if self._ended is not None:  # the last ``close`` may have been cancelled before its thread ended
            await asyncio.wrap_future(self._ended)
        opened = asyncio.get_running_loop().create_future()
        call = QueuedCall(lambda connection: None, opened, asyncio.get_running_loop())
        ended: Future[None] = Future()
        ended.set_running_or_notify_cancel()  # so that the cancellation of ``close`` does not cancel it
        self._queue, self._ended, self._is_hurried = queue.SimpleQueue(), ended, False
        self._thread = threading.Thread(target=self._work, args=(call, ended), name=f"sqlite-{self._name}", daemon=True)
        self._thread.start()
        try:
            await opened
        except BaseException:
            self._queue.put(None)
            self._thread = None
            raise

    async def close(self) -> None:
        """Finish the queued operations and end the thread. After a moment, statements that still run are interrupted, and
        operations that have not begun are refused."""
        if self._thread is None or self._ended is None:
            return
        thread, self._thread = self._thread, None
        self._queue.put(None)
        ended = asyncio.wrap_future(self._ended)  # needs no other thread, so it also works while the process exits
        try:
            done, _ = await asyncio.wait([ended], timeout=_CLOSE_WITHIN)
            while not done:
                self._interrupt()
                done, _ = await asyncio.wait([ended], timeout=_INTERRUPT_EVERY)
        except asyncio.CancelledError:
            self._interrupt()
            ended.cancel()
            raise
        thread.join()

    async def submit(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        if self._thread is None:
            raise StoreUnavailable("this store is closed; open it before use")
        loop = asyncio.get_running_loop()
        call = QueuedCall(work, loop.create_future(), loop)
        self._queue.put(call)
        return await call.waiter

    def _work(self, opened: QueuedCall, ended: Future[None]) -> None:
        try:
            self._serve(opened)
        finally:
            self._refuse_rest()
            ended.set_result(None)

    def _serve(self, opened: QueuedCall) -> None:
        try:
            self._connection = self._connect()
        except Exception as exc:
            _deliver([CallOutcome(opened, error=exc)])
            return
        _deliver([CallOutcome(opened)])
        try:
            while calls := self._next_batch():
                _deliver(self._run(calls))
        finally:
            self._disconnect()

    def _run(self, calls: list[QueuedCall]) -> list[CallOutcome]:
        """Run operations. Never raises: every caller gets a result or an error, and a broken connection is replaced."""
        if self._is_hurried:
            return _refused(calls)
        try:
            if self._connection is None:
                self._connection = self._connect()
            return self._perform(self._connection, calls)
        except BrokenConnection as broken:
            self._disconnect()
            return broken.outcomes
        except Exception as exc:
            self._disconnect()
            return [CallOutcome(call, error=exc) for call in calls]

    def _disconnect(self) -> None:
        """Close the connection, which also rolls back its transaction."""
        with self._disconnecting:
            connection, self._connection = self._connection, None
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.close()

    def _interrupt(self) -> None:
        """Interrupt the statement that runs, and refuse the operations that have not begun."""
        self._is_hurried = True
        if self._disconnecting.acquire(blocking=False):
            try:
                if self._connection is not None:
                    self._connection.interrupt()
            finally:
                self._disconnecting.release()

    def _refuse_rest(self) -> None:
        """Refuse the operations that were queued after the thread was told to end."""
        with suppress(queue.Empty):
            while True:
                call = self._queue.get_nowait()
                if call is not None:
                    _deliver(_refused([call]))

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
        with suppress(RuntimeError):  # the loop is closed, so nobody waits for the results
            loop.call_soon_threadsafe(_settle, ready)


def _refused(calls: Sequence[QueuedCall]) -> list[CallOutcome]:
    return [CallOutcome(call, error=StoreUnavailable("this store was closed before the operation could run")) for call in calls]


def _settle(outcomes: Sequence[CallOutcome]) -> None:
    for outcome in outcomes:
        waiter = outcome.call.waiter
        if not waiter.done() and outcome.error is not None:
            waiter.set_exception(outcome.error)
        elif not waiter.done():
            waiter.set_result(outcome.result)
