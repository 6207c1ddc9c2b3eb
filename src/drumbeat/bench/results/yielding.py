"""Iterates over many items without blocking the event loop."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

FEW = 20  #: items between two yields; 20 samples or seconds take a few milliseconds


async def in_turns(items: Iterable[T], few: int = FEW) -> AsyncIterator[T]:
    """The same items, lazily; after every ``few`` of them other tasks of the event loop run."""
    for n, item in enumerate(items, 1):
        yield item
        if n % few == 0:
            await asyncio.sleep(0)
