"""A daemon thread that runs calls one after the other, for blocking database drivers."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class CallThread:
    """A daemon thread with a queue of calls. Unlike an executor's thread, it lets the process exit while a call hangs."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    async def run(self, work: Callable[[], T]) -> T:
        """Call ``work()`` in the thread and return its result. Cancelling the caller does not stop a call that runs."""
        future: Future[T] = Future()
        self._queue.put((work, future))
        return await asyncio.wrap_future(future)

    def post(self, work: Callable[[], object]) -> None:
        """Queue a call of ``work()`` without waiting for it; the call's result is ignored."""
        self._queue.put((work, Future()))

    def end(self) -> None:
        """End the thread once all queued calls have run."""
        self._queue.put(None)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, future = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BaseException as exc:
                future.set_exception(exc)
            del item, work, future
