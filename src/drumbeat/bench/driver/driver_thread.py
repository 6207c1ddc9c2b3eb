"""A thread that runs one thing after the other, for drivers that block. It never keeps the process from ending."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Lane:
    """One thread of our own. Unlike an executor's, it is a daemon: a driver that never answers does not hang the exit."""

    def __init__(self, name: str) -> None:
        self._queue: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    async def run(self, work: Callable[[], T]) -> T:
        """Do this in the thread and answer with its result. When cancelled, the thread goes on, and nobody waits for it."""
        future: Future[T] = Future()
        self._queue.put((work, future))
        return await asyncio.wrap_future(future)

    def post(self, work: Callable[[], object]) -> None:
        """Do this after all else; nobody waits for it."""
        self._queue.put((work, Future()))

    def end(self) -> None:
        """Let the thread go once it has done what it was given."""
        self._queue.put(None)

    def _run(self) -> None:
        while (piece := self._queue.get()) is not None:
            work, future = piece
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BaseException as exc:
                future.set_exception(exc)
            del piece, work, future
