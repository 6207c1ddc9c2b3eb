"""Paused job types: jobs of a paused type are not claimed, and no workers are started for them.

The pool's policy has one field for each paused type, so that two pauses at the same time do not undo each other. The store's
claim knows nothing of pauses: a worker reads the policy at most once a second, and claims only jobs of the other types.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from drumbeat.core.clock import Clock
from drumbeat.core.pool import PoolId
from drumbeat.pool.model import PAUSED_TYPE, paused_types
from drumbeat.store.interface import Jobs, PoolChange, Pools

READ_EVERY = timedelta(seconds=1)  #: how long a worker may go on claiming jobs of a type after it was paused
_MOST = 100_000  #: ready jobs that are counted by type, for a worker with one handler for every type


def pause_change(types: Iterable[str], now: datetime) -> PoolChange:
    """Return the change of a pool that pauses these job types."""
    return PoolChange(policy={PAUSED_TYPE + kind: now.isoformat() for kind in types})


def resume_change(types: Iterable[str]) -> PoolChange:
    """Return the change of a pool that resumes these job types."""
    return PoolChange(dropped=[PAUSED_TYPE + kind for kind in types])


async def claimable_types(jobs: Jobs, pool_id: PoolId, types: Sequence[str], paused: frozenset[str]) -> tuple[str, ...] | None:
    """Return the types to claim: ``types`` (empty: every type) without the paused ones; None if no type is left.

    If every type is wanted and some are paused, this returns the types of the ready jobs without the paused ones: a claim can
    name the types that it wants, but no exceptions.
    """
    if not paused:
        return tuple(types)
    wanted = types or await jobs.by_type(pool_id, _MOST)
    return tuple(kind for kind in wanted if kind not in paused) or None


class ClaimableTypes:
    """Knows which job types may be claimed now. Reads the pool's policy at most once a second."""

    def __init__(self, pools: Pools, jobs: Jobs, pool_id: PoolId, clock: Clock) -> None:
        self._pools = pools
        self._jobs = jobs
        self._pool_id = pool_id
        self._clock = clock
        self._read_at: timedelta | None = None
        self._paused: frozenset[str] = frozenset()

    def forget(self) -> None:
        """Read the policy again at the next claim, because this process has changed it."""
        self._read_at = None

    async def of(self, types: Sequence[str], without: Iterable[str] = ()) -> tuple[str, ...] | None:
        """Return the types to claim for a worker that handles ``types`` (empty: every type) except those in ``without``,
        and except paused types; None if no type is left."""
        now = self._clock.elapsed()
        if self._read_at is None or now - self._read_at >= READ_EVERY:
            row = await self._pools.find(self._pool_id)
            self._paused = frozenset() if row is None else paused_types(row.policy)
            self._read_at = now
        return await claimable_types(self._jobs, self._pool_id, types, self._paused.union(without))
