"""A job: one unit of work in a pool's queue."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NewType

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId

JobId = NewType("JobId", str)


class JobStatus(StrEnum):
    """Where a job is. Failed attempts are not a state: they live in the attempts log.

    pending ⇄ claimed ─▶ done
       │         └─────▶ poisoned ─▶ pending (requeued by hand)
       └───────────────▶ cancelled
    """

    PENDING = "pending"
    CLAIMED = "claimed"
    DONE = "done"
    POISONED = "poisoned"
    CANCELLED = "cancelled"


JOB_MOVES: Mapping[JobStatus, frozenset[JobStatus]] = {
    JobStatus.PENDING: frozenset({JobStatus.CLAIMED, JobStatus.CANCELLED}),
    JobStatus.CLAIMED: frozenset({JobStatus.PENDING, JobStatus.DONE, JobStatus.POISONED, JobStatus.CANCELLED}),
    JobStatus.DONE: frozenset(),
    JobStatus.POISONED: frozenset({JobStatus.PENDING}),
    JobStatus.CANCELLED: frozenset(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One row of ``jobs``. ``lease_epoch`` fences out every earlier holder."""

    job_id: JobId
    pool_id: PoolId
    payload: Any
    type: str = ""
    status: JobStatus = JobStatus.PENDING
    priority: int = 0
    attempts: int = 0
    max_attempts: int = 3
    lease_owner: WorkerId | None = None
    lease_epoch: int = 0
    lease_until: datetime | None = None
    not_before: datetime | None = None
    result: Any = None
    last_error: str | None = None
    created_at: datetime | None = None
    claimed_at: datetime | None = None
    finished_at: datetime | None = None
