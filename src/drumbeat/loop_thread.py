"""An event loop in a thread of its own, for callers that have none."""

import asyncio
import logging
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from drumbeat.core.errors import InvalidInput

log = logging.getLogger(__name__)

T = TypeVar("T")

_CLOSE_TIMEOUT = 10.0  #: seconds to wait until a cancelled call, or the thread of the event loop, has ended


class LoopThread:
    """An event loop in a daemon thread, on which other threads can run coroutines."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run_loop, args=(self._loop,), name="drumbeat", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread, on its event loop."""
        return threading.current_thread() is self._thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for its result. Raises InvalidInput if called in the loop's thread, or after ``close``."""
        ended = threading.Event()
        future = self.submit(_with_event(work, ended), work)
        try:
            return future.result()
        except BaseException:
            if future.cancel():  # the caller was interrupted, such as by Ctrl-C: wait until the call has ended
                ended.wait(_CLOSE_TIMEOUT)
            raise

    async def run_async(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on this thread's loop while the caller's own loop goes on. Raises as ``run`` does."""
        return await asyncio.wrap_future(self.submit(work))

    def submit(self, work: Coroutine[Any, Any, T], *others: Coroutine[Any, Any, Any]) -> "Future[T]":
        """Start ``work`` on the loop. If that is impossible, closes it and ``others``, which it awaits. Raises InvalidInput."""
        problem = None
        if self.is_current:
            problem = "a blocking connection cannot be used in its own event loop; use drumbeat.connect and await"
        elif not self.is_running:
            problem = "this connection is closed; connect again with drumbeat.connect_blocking"
        if problem is not None:
            for each in (work, *others):
                each.close()
            raise InvalidInput(problem)
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End the loop and its thread."""
        with suppress(RuntimeError):  # another thread has closed it
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_TIMEOUT)

    def close_after(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a last coroutine, then end the loop and its thread. Does not wait; can be called in any thread."""

        async def last() -> None:
            try:
                await work()
            except Exception as exc:
                log.warning("failed to close an abandoned connection: %s", str(exc) or type(exc).__name__)
            finally:
                self._loop.stop()

        asyncio.run_coroutine_threadsafe(last(), self._loop)


class ConnectionLoop:
    """Runs the calls of one blocking connection. The connection is closed when no object refers to the ConnectionLoop."""

    def __init__(self, loop: LoopThread, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """``close`` closes the connection, on the loop. It must not refer to this object, which would then never be freed."""
        self._loop = loop
        self._close = close
        weakref.finalize(self, _close_abandoned, loop, close).atexit = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for its result, like ``LoopThread.run``."""
        return self._loop.run(work)

    def close(self) -> None:
        """Close the connection and end the thread of the event loop. Safe to call more than once."""
        if self._loop.is_running:
            self._loop.run(self._close())
            self._loop.close()


def _close_abandoned(loop: LoopThread, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Close a connection that its user left open. Does nothing in a forked process: the connection belongs to its parent."""
    if loop.is_running:
        loop.close_after(close)
        message = "a blocking connection was not closed; call its close() or use it in a with block"
        warnings.warn(message, ResourceWarning, stacklevel=2)


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


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
