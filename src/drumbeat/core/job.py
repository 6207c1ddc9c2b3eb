"""A job: one unit of work in a pool's queue."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, NewType, overload

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder, WorkerId

JobId = NewType("JobId", str)


class JobStatus(StrEnum):
    """The state of a job. A failed attempt is not a state: it is a row of ``job_attempts``. After it the job is pending again,
    or poisoned (not tried again), because no attempts are left or the error is fatal.

    waiting ─▶ pending ⇄ claimed ─▶ done
       │          │         ├─────▶ poisoned ─▶ pending or waiting (requeued by hand)
       │          │         ▼
       └──────────┴────▶ cancelled ──────────▶ pending or waiting (requeued by hand)
    """

    WAITING = "waiting"  #: for other jobs, which must end first
    PENDING = "pending"
    CLAIMED = "claimed"
    DONE = "done"
    POISONED = "poisoned"
    CANCELLED = "cancelled"


UNFINISHED = frozenset({JobStatus.WAITING, JobStatus.PENDING, JobStatus.CLAIMED})
ENDED = frozenset(JobStatus) - UNFINISHED


class IfFailed(StrEnum):
    """What happens to a waiting job when one of its parents (the jobs it waits for) is poisoned or cancelled."""

    BLOCK = "block"  #: it waits until the parent is requeued and done
    SKIP = "skip"  #: it is cancelled, and the jobs that wait for it see a cancelled parent in turn
    RUN = "run"  #: it runs: a parent that ended in any way counts as done


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long a failed job waits before it is tried again: ``first × factor^(failures − 1)``, at most ``most``."""

    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    most: timedelta = timedelta(minutes=10)
    jitter: float = 0.1  #: each wait is longer or shorter by up to this share, so that retries spread out


USUAL_BACKOFF = Backoff()
NO_BACKOFF = Backoff(first=timedelta(), jitter=0.0)
LONGEST_WAIT = timedelta(days=3650)  #: upper limit of every retry delay


def retry_delay(backoff: Backoff, failures: int, chance: float) -> timedelta:
    """Return how long a job waits after this many failures; the random number ``chance`` (0 to 1) sets the jitter."""
    longest = min(backoff.most, LONGEST_WAIT).total_seconds()
    if not backoff.first:
        return timedelta()
    try:
        wait = backoff.first.total_seconds() * backoff.factor ** max(failures - 1, 0)
    except OverflowError:
        wait = longest
    wait = wait if wait < longest else longest
    with_jitter = wait * (1 + backoff.jitter * (2 * chance - 1))
    return timedelta(seconds=min(max(with_jitter if math.isfinite(with_jitter) else wait, 0.0), LONGEST_WAIT.total_seconds()))


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """A rate limit for a group of jobs: at most ``count`` claims in any period of length ``per``, by the store's clock."""

    count: int
    per: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job before it is pushed to a queue, with all its options."""

    payload: Any  #: plain JSON
    type: str = ""  #: which handler it is for
    job_id: JobId | None = None  #: chosen by the caller; pushing it again does nothing, until retention deletes the job
    priority: int = 0  #: higher first; equal priorities in push order
    delay: timedelta = timedelta()  #: how long it must wait before its first claim, by the store's clock
    run_at: datetime | None = None  #: the earliest moment of its first claim
    max_attempts: int = 3  #: after this many failures the job is poisoned (not tried again)
    max_crashes: int = 3  #: after this many lost workers the job is poisoned; its last attempt runs alone on a worker
    backoff: Backoff = USUAL_BACKOFF
    timeout: timedelta | None = None  #: an attempt that takes longer fails
    unique_key: str | None = None  #: while an unfinished job of the pool has this key, another push returns that job
    group: str | None = None  #: jobs of one group share the limits below
    group_limit: int | None = None  #: how many jobs of the group may be claimed at the same time
    group_rate: RateLimit | None = None  #: how many jobs of the group may be claimed per unit of time
    capability: str | None = None  #: only a worker with this capability may claim the job
    after: tuple[JobId, ...] = ()  #: its parents: it waits until they are done; in any pool of the store, or in the same push
    after_any: bool = False  #: it waits only until one of its parents is done
    if_failed: IfFailed = IfFailed.BLOCK  #: what happens if a parent is poisoned or cancelled
    workflow_id: str | None = None  #: jobs of one workflow can be listed, counted and cancelled together


class JobsWithTemplate(Sequence[NewJob]):
    """A sequence of jobs that differ only in payload. Each job is built from the template ``like`` when it is accessed."""

    __slots__ = ("like", "payloads")

    def __init__(self, payloads: Sequence[Any], like: NewJob) -> None:
        self.payloads = payloads
        self.like = like  #: the template of each job, apart from its payload

    def __len__(self) -> int:
        return len(self.payloads)

    @overload
    def __getitem__(self, index: int) -> NewJob: ...

    @overload
    def __getitem__(self, index: slice) -> "JobsWithTemplate": ...

    def __getitem__(self, index: int | slice) -> "NewJob | JobsWithTemplate":
        if isinstance(index, slice):
            return JobsWithTemplate(self.payloads[index], self.like)
        return replace(self.like, payload=self.payloads[index])


@dataclass(frozen=True, kw_only=True)
class Job:
    """A stored job: one row of ``jobs``. ``lease_epoch`` rises with every claim, so writes of earlier holders are refused.

    It has no slots, so that ``from_fields`` can be quick.
    """

    job_id: JobId
    pool_id: PoolId
    payload: Any
    type: str = ""
    status: JobStatus = JobStatus.PENDING
    priority: int = 0
    attempts: int = 0  #: attempts begun so far, including the current one
    failures: int = 0  #: attempts that failed or timed out in the handler
    crashes: int = 0  #: attempts that lost their worker while no other job ran on it
    suspicions: int = 0  #: attempts that lost their worker while other jobs ran on it too
    max_attempts: int = 3
    max_crashes: int = 3
    backoff: Backoff = USUAL_BACKOFF
    timeout: timedelta | None = None
    unique_key: str | None = None
    group: str | None = None
    group_limit: int | None = None
    group_rate: RateLimit | None = None
    capability: str | None = None
    lease_owner: WorkerId | None = None  #: the worker that holds it, or that finished it
    lease_pool: PoolId | None = None  #: the pool of ``lease_owner``
    lease_instance: str | None = None  #: the process of ``lease_owner``
    lease_epoch: int = 0
    lease_until: datetime | None = None
    lease_extended: bool = False  #: its lease expired once and was not renewed since: at the next expiry the job is taken back
    not_before: datetime | None = None
    cancel_requested: bool = False  #: a user asked to cancel it; its worker should stop it
    progress: float | None = None  #: 0 to 1
    progress_note: str | None = None
    result: Any = None
    last_error: str | None = None
    created_at: datetime | None = None
    claimed_at: datetime | None = None
    begun_at: datetime | None = None  #: start of the current or last attempt; None while the job is prefetched and not begun
    finished_at: datetime | None = None
    workflow_id: str | None = None
    waits_for: int = 0  #: while it waits: how many more of its parents must be done
    after_any: bool = False  #: one of its parents is enough
    if_failed: IfFailed | None = None  #: what happens if a parent is poisoned or cancelled; None: it has no parents
    has_children: bool = False  #: other jobs wait for it, or waited for it
    has_steps: bool = False  #: it has recorded steps, or events were sent to it
    events_sent: int = 0  #: how many events were sent to it

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> "Job":
        """Build a job from all its fields, several times as fast as the constructor does. It keeps the dict ``fields``."""
        job = object.__new__(cls)
        object.__setattr__(job, "__dict__", fields)
        return job

    @property
    def current_error(self) -> str | None:
        """The job's last error; None if the job is done, because it succeeded after that error."""
        return None if self.status is JobStatus.DONE else self.last_error

    @property
    def must_run_alone(self) -> bool:
        """Whether one more crash would poison the job. It then runs alone on its worker, so no other job can be the cause."""
        return self.crashes + self.suspicions >= max(self.max_crashes - 1, 1)

    @property
    def holder(self) -> Holder | None:
        """The worker process that holds the job, or that finished it; None unless the job is claimed or done."""
        if self.lease_owner is None:
            return None
        return Holder(pool_id=self.lease_pool or self.pool_id, worker_id=self.lease_owner, instance=self.lease_instance or "")

    @property
    def token(self) -> "Token":
        return Token(job_id=self.job_id, epoch=self.lease_epoch)


class Token(NamedTuple):
    """Proof of a claim on a job: a worker sends it with every later write about the job. A newer claim makes it invalid."""

    job_id: JobId
    epoch: int


class AttemptOutcome(StrEnum):
    """How an attempt to run a job ended."""

    DONE = "done"
    FAILED = "failed"  #: its handler failed; counts towards max_attempts
    TIMED_OUT = "timed_out"  #: counts as a failure
    CRASHED = "crashed"  #: its worker was lost; counts towards max_crashes
    RELEASED = "released"  #: returned to the queue unfinished (drain, shutdown, worker lost before it began); not a failure
    CANCELLED = "cancelled"
    SUSPENDED = "suspended"  #: it sleeps or waits for an event, and goes on in a later attempt; not a failure


class JobOutcome(NamedTuple):
    """A worker's report of how its attempt to run a claimed job ended."""

    token: Token
    outcome: AttemptOutcome
    result: Any = None
    error: str | None = None
    retry_in: timedelta = timedelta()  #: after FAILED, TIMED_OUT or SUSPENDED: how long until it may be claimed again
    fatal: bool = False  #: after FAILED: poison the job at once, even if attempts are left
    seen_events: int | None = (
        None  #: after SUSPENDED: if more events than these were sent, the job goes on at once; None: it sleeps
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt to run a job: a row of ``job_attempts``."""

    job_id: JobId
    n: int
    worker_id: WorkerId
    worker_pool: PoolId  #: the pool of ``worker_id``, which may differ from the job's pool
    started_at: datetime
    ended_at: datetime | None = None
    outcome: AttemptOutcome | None = None
    error: str | None = None


COUNTED = 10_000  #: by default, counts of unfinished jobs stop here


def format_count(*counts: int) -> str:
    """Add counts of unfinished jobs and format the sum as text; ``10,000+`` if a count reached the cap COUNTED."""
    return f"{sum(counts):,}" + ("+" if any(count >= COUNTED for count in counts) else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounts:
    """The numbers of a queue's jobs by state. Ended jobs are counted exactly, unfinished ones by default up to COUNTED."""

    ready: int = 0  #: pending, and due
    delayed: int = 0  #: pending, not due yet
    waiting: int = 0  #: for other jobs
    claimed: int = 0
    done: int = 0
    poisoned: int = 0
    cancelled: int = 0
    done_so_far: int = 0  #: jobs that are done, and those that have been deleted since because they were old
    poisoned_so_far: int = 0  #: the same for poisoned jobs; a requeued job no longer counts
    oldest_ready: datetime | None = None  #: when the oldest ready job became claimable

    @property
    def pending(self) -> int:
        return self.ready + self.delayed
