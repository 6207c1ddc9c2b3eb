"""An event loop in a thread of its own, for callers that have none."""

import asyncio
import logging
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from drumbeat.core.errors import InvalidInput, StoreUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

_GRACE = 1.0  #: seconds that running calls have to end before ``close`` cancels them
_CANCEL_TIMEOUT = 5.0  #: seconds to wait until a cancelled call has ended
_CLOSE_TIMEOUT = 10.0  #: seconds that closing the store may take
_LONGEST_CLOSE = _GRACE + _CANCEL_TIMEOUT + _CLOSE_TIMEOUT + 1.0

_CLOSED = "this connection is closed; connect again with drumbeat.connect_blocking"
_CLOSED_MEANWHILE = "this connection was closed while a call ran, which may or may not have had its effect; connect again"
_IN_ITS_LOOP = "a blocking connection cannot be used in its own event loop; use drumbeat.connect and await"

Last = Callable[[], Coroutine[Any, Any, None]]  #: what to await on the loop before it ends


class LoopThread:
    """An event loop in a daemon thread, on which other threads can run coroutines. Only ``close`` ends it: it goes on after a
    task raised SystemExit or stopped the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.RLock()  #: can be taken again by a garbage collection that closes an abandoned connection
        self._closed = False
        self._last: Last | None = None
        self._failure: Exception | None = None  #: why ``_last`` failed
        self._calls: set[Future[Any]] = set()  #: calls that have not ended
        self._tasks: set[asyncio.Task[Any]] = set()  #: the same calls, as tasks of the loop
        self._thread = threading.Thread(target=self._run, name="drumbeat", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread, on its event loop."""
        return threading.current_thread() is self._thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for its result. Raises InvalidInput if called in the loop's thread, after ``close``, or if
        the loop is closed before the coroutine has ended."""
        ended = threading.Event()
        future = self.submit(_with_event(work, ended), work)
        try:
            return future.result()
        except BaseException as exc:
            if isinstance(exc, CancelledError) and self._closed:
                raise InvalidInput(_CLOSED_MEANWHILE) from exc
            if future.cancel():  # the caller was interrupted, such as by Ctrl-C: wait until the call has ended
                ended.wait(_CANCEL_TIMEOUT)
            raise

    async def run_async(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on this thread's loop while the caller's own loop goes on. Raises as ``run`` does."""
        future, caller = self.submit(work), asyncio.current_task()
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError as exc:
            if self._closed and future.cancelled() and not (caller is not None and caller.cancelling()):
                raise InvalidInput(_CLOSED_MEANWHILE) from exc
            raise

    def submit(self, work: Coroutine[Any, Any, T], *others: Coroutine[Any, Any, Any]) -> "Future[T]":
        """Start ``work`` on the loop. If that is impossible, closes it and ``others``, which it awaits. Raises InvalidInput."""
        problem = _IN_ITS_LOOP if self.is_current else None if self.is_running else _CLOSED
        if problem is None:
            with self._lock:  # once ``close`` was called, nothing is started that would never run
                if not self._closed:
                    future = asyncio.run_coroutine_threadsafe(self._as_call(work), self._loop)
                    self._calls.add(future)
                    future.add_done_callback(self._calls.discard)
                    return future
        for each in (work, *others):
            each.close()
        raise InvalidInput(problem or _CLOSED)

    def close(self, last: Last | None = None) -> None:
        """Await ``last``, then end the loop and its thread. Calls that still run get a second to end, then they are cancelled.
        Does nothing if it is closed. Takes at most a few seconds: if the loop does not end, a warning is logged. Raises what
        ``last`` raises; InvalidInput if called in the loop's thread."""
        if self.is_current:
            raise InvalidInput(_IN_ITS_LOOP)
        is_first = self.is_running and self.close_soon(last)
        self._thread.join(_LONGEST_CLOSE)
        if self.is_running:
            log.warning(
                "the event loop of a blocking connection has not ended within %g s: a call blocks it; its thread ends with the "
                "process",
                _LONGEST_CLOSE,
            )
        elif is_first and self._failure is not None:
            raise self._failure

    def close_soon(self, last: Last | None = None) -> bool:
        """Like ``close``, but does not wait; can be called in any thread. Returns False if it was closed before."""
        with self._lock:
            if self._closed:
                return False
            self._closed, self._last = True, last
        with suppress(RuntimeError):  # the thread has ended
            self._loop.call_soon_threadsafe(self._loop.stop)
        return True

    async def _as_call(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await work
        finally:
            self._tasks.discard(task)

    def _run(self) -> None:
        """Run the loop until it is closed, then give each call that has not ended an answer."""
        try:
            while not (self._closed or self._loop.is_closed()):
                self._try(self._loop.run_forever)
            finish = self._loop.create_task(self._finish())
            while not (finish.done() or self._loop.is_closed()):
                self._try(lambda: self._loop.run_until_complete(finish))
        finally:
            self._closed = True
            for call in [*self._calls]:
                with suppress(InvalidStateError):
                    call.set_exception(InvalidInput(_CLOSED_MEANWHILE))
            self._loop.close()

    def _try(self, run: Callable[[], object]) -> None:
        """Run the loop until it stops, also if a task has stopped it, or raised SystemExit, which asyncio passes on."""
        try:
            with suppress(RuntimeError):  # the loop was stopped before its last task has ended
                run()
        except (SystemExit, KeyboardInterrupt) as exc:
            log.warning(
                "a call on a blocking connection raised %s; its caller gets this error, and other calls go on",
                type(exc).__name__,
            )

    async def _finish(self) -> None:
        """End the calls that still run, and await ``_last``."""
        await asyncio.sleep(0)  # lets the calls begin that were submitted just before
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_GRACE)
        if self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=_CANCEL_TIMEOUT)
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await (self._last() if self._last is not None else asyncio.sleep(0))
        except TimeoutError as exc:
            self._failure = StoreUnavailable(f"the store was not closed within {_CLOSE_TIMEOUT:g} s; it ends with the process")
            self._failure.__cause__ = exc
        except Exception as exc:
            self._failure = exc


class ConnectionLoop:
    """Runs the calls of one blocking connection. The connection is closed when no object refers to the ConnectionLoop."""

    def __init__(self, loop: LoopThread, close: Last) -> None:
        """``close`` closes the connection, on the loop. It must not refer to this object, which would then never be freed."""
        self._loop = loop
        self._close = close
        weakref.finalize(self, _close_abandoned, loop, close).atexit = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for its result, like ``LoopThread.run``."""
        return self._loop.run(work)

    def close(self) -> None:
        """Close the connection and end the thread of the event loop, like ``LoopThread.close``. Safe to call more than once."""
        self._loop.close(self._close)


def _close_abandoned(loop: LoopThread, close: Last) -> None:
    """Close a connection that its user left open. Does nothing in a forked process: the connection belongs to its parent."""
    if loop.is_running and loop.close_soon(partial(_close_or_log, close)):
        message = "a blocking connection was not closed; call its close() or use it in a with block"
        warnings.warn(message, ResourceWarning, stacklevel=2)


async def _close_or_log(close: Last) -> None:
    try:
        await close()
    except Exception as exc:
        log.warning("failed to close an abandoned connection: %s", str(exc) or type(exc).__name__)


def refuse_in_loop(call: str, instead: str) -> None:
    """Raise InvalidInput if an event loop runs in this thread: a long call would block the loop and all its tasks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise InvalidInput(f"{call} would block the event loop that runs in this thread; use {instead}")


async def _with_event(work: Coroutine[Any, Any, T], ended: threading.Event) -> T:
    try:
        return await work
    finally:
        ended.set()
