"""Lets Ctrl-C end a call that blocks the event loop, such as reading standard input."""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt at once during the block, also if the block keeps an event loop from running.

    Otherwise the first Ctrl-C would only cancel the loop's task, which has no effect while the loop cannot run. Does nothing
    if Ctrl-C is ignored, or outside the main thread, because only the main thread gets signals."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(before := signal.getsignal(signal.SIGINT)):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def interruptible_items(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items. While the next one is awaited, Ctrl-C raises KeyboardInterrupt."""
    iterator = iter(items)
    while True:
        with interruptible():
            if (task := asyncio.current_task()) is not None and task.cancelling():
                await asyncio.sleep(0)  # raises CancelledError: Ctrl-C came before the block
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item
