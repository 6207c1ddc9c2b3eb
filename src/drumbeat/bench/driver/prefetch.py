"""Encodes the messages to the database in advance, in a separate thread and in blocks of about half a second of load."""

import queue
import time
from collections.abc import Callable
from threading import Event

from drumbeat.bench.driver.blocks import BlockMaker, MessageBlock
from drumbeat.bench.driver.core import Core

_BLOCKS_AHEAD = 3
_SMALLEST_BLOCK, _LARGEST_BLOCK = 512, 16_384  #: operations in a block
_BLOCK_LASTS = 0.5  #: seconds that a block should last


class Feeder:
    """One thread encodes messages for the database; another gives them in blocks to the driver's core, which sends them."""

    def __init__(self, maker: BlockMaker, stop: Event, completed: Callable[[], int]) -> None:
        self._maker = maker
        self._stop = stop
        self._completed = completed  #: returns how many operations have ended so far
        self._blocks: queue.Queue[MessageBlock] = queue.Queue(_BLOCKS_AHEAD)

    def run(self) -> None:
        """Encode blocks of messages until ``stop`` is set. Adapts their size to the rate at which operations end."""
        size, began, before = _SMALLEST_BLOCK, time.monotonic(), 0
        while not self._stop.is_set():
            self._offer(self._maker.make(size))
            passed, used = time.monotonic() - began, self._completed() - before
            if passed >= _BLOCK_LASTS:
                size = min(max(round(used / passed * _BLOCK_LASTS), _SMALLEST_BLOCK), _LARGEST_BLOCK)
                began, before = began + passed, before + used

    def _offer(self, block: MessageBlock) -> None:
        """Queue an encoded block for the sending thread. Waits until the queue has room or ``stop`` is set."""
        while not self._stop.is_set():
            try:
                self._blocks.put(block, timeout=0.1)
            except queue.Full:
                continue
            return

    def feed(self, core: Core) -> None:
        """Give message blocks to the core (the sending loop) until it has two. If it has none, waits up to 0.1 s for one."""
        while core.blocks() < 2:
            try:
                core.feed(self._blocks.get(block=core.blocks() == 0, timeout=0.1))
            except queue.Empty:
                return
