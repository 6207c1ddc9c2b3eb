"""Many things a few at a time: whoever else is on the loop gets a turn in between."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

FEW = 20  #: samples, or seconds: some milliseconds' work


async def in_turns(things: Iterable[T], few: int = FEW) -> AsyncIterator[T]:
    """The same things; after every few of them the others on the loop come first. A generator is made as it is gone through."""
    for n, thing in enumerate(things, 1):
        yield thing
        if n % few == 0:
            await asyncio.sleep(0)
