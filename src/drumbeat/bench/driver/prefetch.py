"""Messages made ahead of time by a thread of their own, in blocks that last about half a second at the rate they are used."""

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
    """Makes blocks until it is stopped; whoever drives takes them."""

    def __init__(self, maker: BlockMaker, stop: Event, ended: Callable[[], int]) -> None:
        self._maker = maker
        self._stop = stop
        self._ended = ended  #: how many operations so far
        self._blocks: queue.Queue[MessageBlock] = queue.Queue(_BLOCKS_AHEAD)

    def run(self) -> None:
        """The feeding thread."""
        size, began, before = _SMALLEST_BLOCK, time.monotonic(), 0
        while not self._stop.is_set():
            self._offer(self._maker.make(size))
            passed, used = time.monotonic() - began, self._ended() - before
            if passed >= _BLOCK_LASTS:
                size = min(max(round(used / passed * _BLOCK_LASTS), _SMALLEST_BLOCK), _LARGEST_BLOCK)
                began, before = began + passed, before + used

    def _offer(self, block: MessageBlock) -> None:
        """Wait until the block is wanted."""
        while not self._stop.is_set():
            try:
                self._blocks.put(block, timeout=0.1)
            except queue.Full:
                continue
            return

    def feed(self, core: Core) -> None:
        """Give the core what it can keep; wait a little where it has nothing at all."""
        while core.blocks() < 2:
            try:
                core.feed(self._blocks.get(block=core.blocks() == 0, timeout=0.1))
            except queue.Empty:
                return
