"""Encodes messages in advance in a separate thread, in blocks that last about half a second at the current rate."""

import queue
import time
from collections.abc import Callable
from threading import Event

from drumbeat.bench.driver.blocks import BlockMaker, MessageBlock
from drumbeat.bench.driver.core import Core

_BLOCKS_AHEAD = 3
_SMALLEST_BLOCK, _LARGEST_BLOCK = 512, 16_384  #: operations
_BLOCK_LASTS = 0.5  #: seconds


class Feeder:
    """Encodes blocks until it is stopped; the driving thread takes them."""

    def __init__(self, maker: BlockMaker, stop: Event, completed: Callable[[], int]) -> None:
        self._maker = maker
        self._stop = stop
        self._completed = completed  #: returns how many operations have ended so far
        self._blocks: queue.Queue[MessageBlock] = queue.Queue(_BLOCKS_AHEAD)

    def run(self) -> None:
        """Encode blocks, sized to the current rate. Runs in the feeding thread."""
        size, began, before = _SMALLEST_BLOCK, time.monotonic(), 0
        while not self._stop.is_set():
            self._offer(self._maker.make(size))
            passed, used = time.monotonic() - began, self._completed() - before
            if passed >= _BLOCK_LASTS:
                size = min(max(round(used / passed * _BLOCK_LASTS), _SMALLEST_BLOCK), _LARGEST_BLOCK)
                began, before = began + passed, before + used

    def _offer(self, block: MessageBlock) -> None:
        """Queue the block, waiting until there is room."""
        while not self._stop.is_set():
            try:
                self._blocks.put(block, timeout=0.1)
            except queue.Full:
                continue
            return

    def feed(self, core: Core) -> None:
        """Fill the core's queue of blocks; waits briefly if the core has none at all."""
        while core.blocks() < 2:
            try:
                core.feed(self._blocks.get(block=core.blocks() == 0, timeout=0.1))
            except queue.Empty:
                return
