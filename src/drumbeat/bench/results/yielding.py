"""Iterates over many items without blocking the event loop."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

FEW = 20  #: items between two yields to the event loop; they take a few milliseconds


async def iterate_yielding(items: Iterable[T], few: int = FEW) -> AsyncIterator[T]:
    """Yield the items. After every ``few`` items, let other tasks of the event loop run."""
    for n, item in enumerate(items, 1):
        yield item
        if n % few == 0:
            await asyncio.sleep(0)
