"""The state of a pool as its users see it: job counts, live workers, and problems that keep jobs waiting."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from drumbeat.core.job import JobCounts
from drumbeat.core.pool import PoolRow
from drumbeat.core.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """The current state of a pool: its row, job counts, live workers, and problems that keep jobs waiting."""

    pool: PoolRow
    counts: JobCounts
    workers: tuple[Worker, ...]  #: live workers
    now: datetime
    trouble: str | None = None  #: why no workers are started at the moment
    unhandled: Mapping[str, int] = field(default_factory=dict)  #: number of ready jobs by type, for types without a handler
    not_loaded: Mapping[str, str] = field(default_factory=dict)  #: types whose handler workers cannot load, with the cause
    failure: str | None = None  #: why the newest worker failed, if it failed before it ran a job

    @property
    def no_handler(self) -> str | None:
        """A message about ready jobs that wait because their type has no handler; None if there are no such jobs."""
        from drumbeat.pool.model import no_handler

        return no_handler(self.pool.pool_id, self.unhandled, self.not_loaded)

    @property
    def last_failure(self) -> str | None:
        """Why the newest worker failed. None if no job is ready, a worker is live, or ``trouble`` already says why."""
        is_told = self.trouble is not None or any(not worker.was_refused for worker in self.workers)
        return None if is_told or not self.counts.ready else self.failure

    @property
    def is_paused(self) -> bool:
        return self.pool.paused_until is not None and self.pool.paused_until > self.now

    @property
    def paused_types(self) -> tuple[str, ...]:
        """The job types that are paused."""
        from drumbeat.pool.model import paused_types

        return tuple(sorted(paused_types(self.pool.policy)))

    @property
    def oldest_waits(self) -> timedelta | None:
        """How long the oldest ready job has waited; None if no job is ready."""
        return None if self.counts.oldest_ready is None else max(self.now - self.counts.oldest_ready, timedelta())
