"""Pruning in many short steps, so that nobody who writes meanwhile waits for long."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Protocol

from drumbeat.core.pool import PoolId
from drumbeat.core.retention import Prunable, Pruned

PAUSE = 3.0  #: times what a step took: so much of the time is left to others, who look for their turn only now and then
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.005, 0.5  #: seconds


class Pruner(Protocol):
    async def prune_some(self, pool_id: PoolId, what: Prunable, older_than: timedelta) -> Pruned: ...


async def prune_all(
    pruner: Pruner,
    pools: Iterable[PoolId],
    kinds: Iterable[Prunable],
    older_than: timedelta,
    told: Callable[[int], object] | None = None,
) -> Counter[Prunable]:
    """Delete all that is older than this of these pools, step by step. Counts what was deleted by its kind."""
    gone, now = Counter(dict.fromkeys(kinds, 0)), asyncio.get_running_loop().time
    for pool_id, what in itertools.product(pools, [*gone]):
        more = True
        while more:
            began = now()
            step = await pruner.prune_some(pool_id, what, older_than)
            gone[what] += step.rows
            more = step.more
            if told is not None and step.rows:
                told(gone.total())
            if more:
                await asyncio.sleep(min(max(PAUSE * (now() - began), _SHORTEST_PAUSE), _LONGEST_PAUSE))
    return gone
