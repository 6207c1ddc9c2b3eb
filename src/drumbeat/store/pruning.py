"""Prunes (deletes old rows) in many short steps with pauses, so that concurrent writers never wait long."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Protocol

from drumbeat.core.pool import PoolId
from drumbeat.core.retention import Prunable, Pruned

PAUSE = 3.0  #: each pause is this many times as long as the step before it, so that waiting writers find a free moment
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.005, 0.5  #: bounds of a pause, in seconds


class Pruner(Protocol):
    async def prune_some(self, pool_id: PoolId, what: Prunable, older_than: timedelta) -> Pruned: ...


async def prune_all(
    pruner: Pruner,
    pools: Iterable[PoolId],
    kinds: Iterable[Prunable],
    older_than: timedelta,
    on_progress: Callable[[int], object] | None = None,
) -> Counter[Prunable]:
    """Delete all rows of these pools and kinds that are older than ``older_than``. Returns the number of rows by kind.

    Poisoned jobs come first, because their parents can be deleted only after them."""
    ordered = sorted(kinds, key=lambda kind: kind is not Prunable.POISONED)
    deleted = Counter(dict.fromkeys(ordered, 0))
    for pool_id, what in itertools.product(pools, [*deleted]):
        async for rows in prune_in_steps(partial(pruner.prune_some, pool_id, what, older_than)):
            deleted[what] += rows
            if on_progress is not None and rows:
                on_progress(deleted.total())
    return deleted


async def prune_in_steps(step: Callable[[], Awaitable[Pruned]]) -> AsyncIterator[int]:
    """Repeat a short step that deletes rows until there are no more, with pauses. Yields how many rows each step deleted."""
    now, more = asyncio.get_running_loop().time, True
    while more:
        began = now()
        done = await step()
        yield done.rows
        more = done.more
        if more:
            await asyncio.sleep(min(max(PAUSE * (now() - began), _SHORTEST_PAUSE), _LONGEST_PAUSE))


async def prune_all_leases(step: Callable[[timedelta], Awaitable[Pruned]], older_than: timedelta) -> int:
    """Delete all one-time leases that expired longer than ``older_than`` ago. Returns how many."""
    return sum([rows async for rows in prune_in_steps(partial(step, older_than))])
