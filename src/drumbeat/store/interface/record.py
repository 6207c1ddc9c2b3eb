"""Append-only records: beats, samples, logs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from drumbeat.core.beat import Beat, NewBeat
from drumbeat.core.lease import Fence
from drumbeat.core.log import Log, NewLog
from drumbeat.core.pool import PoolId
from drumbeat.core.sample import Sample, StoredSample
from drumbeat.core.worker import WorkerId


class Beats(Protocol):
    """The record of each controller beat: what it saw, decided and did."""

    async def append(self, pool_id: PoolId, beat: NewBeat, *, fence: Fence | None = None) -> Beat: ...

    async def list(
        self, pool_id: PoolId, *, since: datetime | None = None, after: int = 0, limit: int = 1000
    ) -> Sequence[Beat]:
        """Beats numbered above ``after``, oldest first."""
        ...

    async def deeds(
        self, pool_id: PoolId, *, since: datetime | None = None, after: int = 0, limit: int = 1000
    ) -> Sequence[Beat]:
        """Like ``list``, but only beats with actions, and without ``view``, which is most of a beat's size."""
        ...

    async def last(self, pool_id: PoolId, *, before: datetime | None = None, seen: bool = False) -> Beat | None:
        """The last beat, at ``before`` or earlier if given; with ``seen`` the last of them that has a ``view``."""
        ...


class Samples(Protocol):
    """What workers measured. Heartbeats write them; ``append`` is for samples buffered while the store was unavailable."""

    async def append(self, pool_id: PoolId, worker_id: WorkerId, instance: str, samples: Sequence[Sample]) -> None:
        """Add samples; skips one whose ``n`` exists already. Raises WorkerGone."""
        ...

    async def list(
        self,
        pool_id: PoolId,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        worker_id: WorkerId | None = None,
        failed: bool = False,
        limit: int = 10_000,
    ) -> Sequence[StoredSample]:
        """Samples whose interval ended after ``since`` and not after ``until``, oldest first; ``failed``: only samples with
        errors."""
        ...


class Logs(Protocol):
    """Log lines of a pool and its workers."""

    async def append(self, pool_id: PoolId, entries: Sequence[NewLog]) -> None: ...

    async def list(
        self,
        pool_id: PoolId,
        *,
        after: int = 0,
        worker_id: WorkerId | None = None,
        level: str | None = None,
        limit: int = 1000,
    ) -> Sequence[Log]:
        """Lines numbered above ``after``, oldest first; ``level`` is the lowest level to return."""
        ...
