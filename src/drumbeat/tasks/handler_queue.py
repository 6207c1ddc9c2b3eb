"""The queue for tasks that the handlers of a test pool push: they go to the pool's own store in memory."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from drumbeat.core.errors import InvalidInput
from drumbeat.pool.handler_record import record_handlers
from drumbeat.pool.service import Pool
from drumbeat.store.interface import Store
from drumbeat.tasks.queue import QUEUE_OF_HANDLER, StoreQueue

T = TypeVar("T")


@contextmanager
def pushing_to(store: Store, open_pool: Callable[[str], Pool]) -> Iterator[None]:
    """During the block, tasks are pushed to pools of this store, which ``open_pool`` returns by name. Must be entered on the
    event loop that uses the store."""
    before = QUEUE_OF_HANDLER.set(StoreQueue(_OpenStore(store, open_pool), _SameLoop()))
    try:
        yield
    finally:
        QUEUE_OF_HANDLER.reset(before)


class _OpenStore:
    """Gives the queue of tasks a store that is already open, in place of a connection that it opens itself."""

    loop = None

    def __init__(self, store: Store, open_pool: Callable[[str], Pool]) -> None:
        self._store = store
        self.pool = open_pool

    async def record_handlers(self, name: str, handlers: Mapping[str, str]) -> None:
        await record_handlers(self._store, self.pool(name), handlers)

    async def close(self) -> None:
        """Do nothing: the store belongs to the test pool."""


class _SameLoop:
    """Runs the coroutines of a store in memory on the test's event loop, even for callers that are not coroutines."""

    is_running = False  #: there is no thread to end

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. On the loop's own thread, the coroutine must not wait for anything: the
        operations of a store in memory never do. Raises InvalidInput if it waits, such as in an async hook of a push."""
        if threading.get_ident() != self._thread:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        try:
            work.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        work.close()
        raise InvalidInput("this push waits for something, such as an async hook; use await task.apush(…) in an async handler")

    async def run_async(self, work: Coroutine[Any, Any, T]) -> T:
        return await work
