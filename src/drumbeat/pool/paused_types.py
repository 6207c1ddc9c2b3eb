"""Paused job types: jobs of a paused type are not claimed, and no workers are started for them.

The pool's policy has one field for each paused type, so that two pauses at the same time do not undo each other. The store's
claim knows nothing of pauses: a worker reads the policy at most once a second, and claims only jobs of the other types.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from drumbeat.core.clock import Clock
from drumbeat.core.pool import PoolId
from drumbeat.pool.model import PAUSED_TYPE, paused_types
from drumbeat.store.interface import PoolChange, Pools

READ_EVERY = timedelta(seconds=1)  #: how long a worker may go on claiming jobs of a type after it was paused


class TypeFilter(NamedTuple):
    """Which job types to claim or to count."""

    types: tuple[str, ...]  #: only these types; empty: every type
    without: tuple[str, ...]  #: none of these types


def pause_change(types: Iterable[str], now: datetime) -> PoolChange:
    """Return the change of a pool that pauses these job types."""
    return PoolChange(policy={PAUSED_TYPE + kind: now.isoformat() for kind in types})


def resume_change(types: Iterable[str]) -> PoolChange:
    """Return the change of a pool that resumes these job types."""
    return PoolChange(dropped=[PAUSED_TYPE + kind for kind in types])


def claimable_types(types: Sequence[str], excluded: Collection[str]) -> TypeFilter | None:
    """Return the types to claim: ``types`` (empty: every type) without ``excluded``; None if no type is left."""
    left = tuple(kind for kind in types if kind not in excluded)
    if types:
        return TypeFilter(left, ()) if left else None
    return TypeFilter((), tuple(sorted(excluded)))


class ClaimableTypes:
    """Knows which job types may be claimed now. Reads the pool's policy at most once a second."""

    def __init__(self, pools: Pools, pool_id: PoolId, clock: Clock) -> None:
        self._pools = pools
        self._pool_id = pool_id
        self._clock = clock
        self._read_at: timedelta | None = None
        self._paused: frozenset[str] = frozenset()

    def forget(self) -> None:
        """Read the policy again at the next claim, because this process has changed it."""
        self._read_at = None

    async def of(self, types: Sequence[str], without: Iterable[str] = ()) -> TypeFilter | None:
        """Return the types to claim for a worker that handles ``types`` (empty: every type) except those in ``without``,
        and except paused types; None if no type is left."""
        now = self._clock.elapsed()
        if self._read_at is None or now - self._read_at >= READ_EVERY:
            row = await self._pools.find(self._pool_id)
            self._paused = frozenset() if row is None else paused_types(row.policy)
            self._read_at = now
        return claimable_types(types, self._paused.union(without))
