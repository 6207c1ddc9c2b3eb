"""What is written down as it happens: beats, samples, logs."""

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
    """What controllers saw, decided and did."""

    async def append(self, pool_id: PoolId, beat: NewBeat, *, fence: Fence | None = None) -> Beat: ...

    async def list(
        self, pool_id: PoolId, *, since: datetime | None = None, after: int = 0, limit: int = 1000
    ) -> Sequence[Beat]:
        """Beats numbered above ``after``, oldest first."""
        ...

    async def deeds(
        self, pool_id: PoolId, *, since: datetime | None = None, after: int = 0, limit: int = 1000
    ) -> Sequence[Beat]:
        """The same, but only beats that did something, and without what they saw: that is most of a beat."""
        ...

    async def last(self, pool_id: PoolId, *, before: datetime | None = None, seen: bool = False) -> Beat | None:
        """The last beat, or the last that is not later than ``before``; ``seen``: the last of them that holds what it saw."""
        ...


class Samples(Protocol):
    """What workers measured. Written by heartbeats; ``append`` is for those kept back while the store was away."""

    async def append(self, pool_id: PoolId, worker_id: WorkerId, instance: str, samples: Sequence[Sample]) -> None:
        """Keep samples; one whose ``n`` is there already is passed over. Raises WorkerGone."""
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
        """Samples whose interval ended after ``since`` and not after ``until``, oldest first; ``failed``: only those that
        count errors."""
        ...


class Logs(Protocol):
    """Log lines, kept beside what they are about."""

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
        """Lines numbered above ``after``, oldest first; ``level`` is the least to bring."""
        ...
