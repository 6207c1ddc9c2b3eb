"""Store interfaces for append-only records: beats, samples and logs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from drumbeat.core.beat import Beat, NewBeat
from drumbeat.core.lease import Fence
from drumbeat.core.log import Log, NewLog
from drumbeat.core.pool import PoolId
from drumbeat.core.sample import Sample, StoredSample
from drumbeat.core.worker import WorkerId

MOST_SEARCHED = 5000  #: in how many of a pool's last beats those with actions are searched: a day and more of a fleet's beats


class Beats(Protocol):
    """The record of beats (passes of a control loop): what the loop observed, decided and did in each."""

    async def append(self, pool_id: PoolId, beat: NewBeat, *, fence: Fence | None = None) -> Beat: ...

    async def list(
        self, pool_id: PoolId, *, since: datetime | None = None, after: int = 0, limit: int = 1000
    ) -> Sequence[Beat]:
        """Return the beats numbered above ``after``, oldest first."""
        ...

    async def with_actions(
        self, pool_id: PoolId, *, since: datetime | None = None, limit: int = 1000, among: int = MOST_SEARCHED
    ) -> Sequence[Beat]:
        """Return the last ``limit`` beats in which actions were taken, oldest first. Their ``view`` is left out.

        Only the pool's last ``among`` beats are searched, so that the cost does not grow with the record of a quiet pool."""
        ...

    async def last(self, pool_id: PoolId, *, before: datetime | None = None, seen: bool = False) -> Beat | None:
        """Return the last beat, or the last one up to ``before``. ``seen``: ignore beats without a ``view`` (observations)."""
        ...


class Samples(Protocol):
    """Samples: what workers measured. A heartbeat stores one sample; ``append`` stores those taken during an outage."""

    async def append(self, pool_id: PoolId, worker_id: WorkerId, instance: str, samples: Sequence[Sample]) -> None:
        """Add samples of a worker; skips a sample with a number ``n`` that exists already. Raises WorkerGone."""
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
        """Return the samples of intervals that ended after ``since`` and up to ``until``, oldest first. ``failed``: only
        samples with errors or with ``failed_connects`` in ``extra``."""
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
        """Return log lines numbered above ``after``, oldest first; ``level`` is the lowest level to return."""
        ...
