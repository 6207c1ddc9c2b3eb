"""Store interfaces for job queues. A claim is a lease: it expires unless the worker renews it, so that no job is lost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from drumbeat.core.job import Attempt, Job, JobCounts, JobId, JobOutcome, JobStatus, NewJob, Token
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """A worker's request for jobs."""

    pool_id: PoolId  #: the pool that has the jobs
    holder: Holder  #: the worker that will hold them
    lease: timedelta  #: how long the worker holds the jobs without a renewal
    limit: int = 1
    ahead: bool = False  #: prefetch: no attempt is counted until ``begin``
    alone: bool = False  #: the worker holds no other job, so it can get a job that must run alone
    capabilities: tuple[str, ...] = ()
    types: tuple[str, ...] = ()  #: only jobs of these types; empty: every type
    without: tuple[str, ...] = ()  #: no jobs of these types, such as paused ones

    def accepts(self, job_type: str) -> bool:
        """Whether the worker accepts jobs of this type."""
        return (not self.types or job_type in self.types) and job_type not in self.without

    def could_have(self, job_type: str, capability: str | None) -> bool:
        """Whether the worker accepts jobs of this type and has the capability (None: the job needs none)."""
        return self.accepts(job_type) and (not capability or capability in self.capabilities)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Whether a pending job is due now, and when the next delayed job will be due."""

    is_ready: bool  #: a job is due now
    next_in: timedelta | None  #: time until the next delayed job is due; None if there is none

    @property
    def wait(self) -> timedelta | None:
        """Time until a job is due: zero if one is due now, None if no job is pending."""
        return timedelta() if self.is_ready else self.next_in


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleResult:
    """The result of ``settle``: which outcomes were refused, and the jobs claimed in the same transaction."""

    stale: tuple[Token, ...]  #: tokens of refused outcomes: the worker no longer holds the job, or the job has ended
    claimed: tuple[Job, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewResult:
    """The result of ``renew``: which claims are lost, and which jobs the worker must cancel."""

    stale: tuple[Token, ...]  #: claims that this worker no longer holds; its writes for them are refused
    cancelled: tuple[Token, ...]  #: claims still held, of jobs with a cancel request
    locked: tuple[Token, ...] = ()  #: claims still held, but not extended, since an open transaction has locked the job


class Queue(Protocol):
    """Pushes, claims and settles jobs (records their outcomes). Methods are atomic; they raise NotFound if there is no pool."""

    async def push(self, pool_id: PoolId, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        """Add jobs, all or none. Returns their ids, in order. A job is not added if another job has the same id, or if
        an unfinished job has the same unique key; then the other job's id is returned. Wakes workers that wait for jobs.

        A job with parents (``after``) waits until they are done. Raises NotFound if a parent, or a pool of jobs with this id,
        does not exist, and InvalidInput if jobs of this push wait for each other in a circle; then no job is added.
        """
        ...

    async def claim(self, claiming: ClaimRequest) -> Sequence[Job]:
        """Claim ready jobs, highest priority first, then oldest. Concurrent claims never get the same job.

        Increases each job's epoch (the number of its claim, which later writes must name); counts an attempt unless the worker
        prefetches (``ahead``). Skips jobs that are not due yet, jobs of a group that has reached its limit or rate, and jobs
        that need a capability the worker lacks. Returns no jobs of a paused pool, and none to a worker that was asked to drain
        or has ended. A worker that never joined, and so has no row, can claim jobs too (``drumbeat.testing`` does so).

        A job that must run alone goes only to a worker that holds no other job (``alone``), and is the only job returned.
        With a ``limit`` of 1 such a job is claimed in queue order; with a higher limit, only if no other job can be claimed.
        """
        ...

    async def begin(self, holder: Holder, tokens: Sequence[Token]) -> Sequence[Token]:
        """Record that prefetched jobs (claimed with ``ahead``) begin now, and count an attempt for each. Returns the tokens of
        jobs that this worker no longer holds and must not run. Harmless to repeat."""
        ...

    async def settle(
        self, holder: Holder, verdicts: Sequence[JobOutcome], claiming: ClaimRequest | None = None
    ) -> SettleResult:
        """Record the outcomes of claimed jobs, and claim more jobs for the same holder, in one transaction.

        DONE stores the result. FAILED and TIMED_OUT count a failure: the job is retried after ``retry_in``, or poisoned if the
        outcome is fatal or the failures reach max_attempts. RELEASED makes the job pending at once, and does not count the
        attempt. SUSPENDED makes the job pending after ``retry_in``, or at once if more events than ``seen_events`` were sent to
        it, and does not count the attempt. CANCELLED ends the job. Each outcome also ends the attempt in the attempts log. If
        the worker no longer holds the job under the token, nothing changes and the token is returned as stale.

        When a job ends, here or by any other method, the jobs that wait for it are updated in the same transaction: a job
        that waits for nothing else becomes pending; after a failed parent ``if_failed`` decides.
        """
        ...

    async def renew(self, holder: Holder, tokens: Sequence[Token], lease: timedelta) -> RenewResult:
        """Extend claims to ``lease`` from now. Returns which claims are lost and which jobs the worker must cancel."""
        ...

    async def release(self, holder: Holder, error: str, *, charge: bool = True, fence: Fence | None = None) -> Sequence[Job]:
        """Take back all jobs that an ended worker process held, in the queues of all pools, and return them as they are now.
        Does not touch jobs of another process or pool that uses the same worker id. Harmless to repeat.

        ``charge``: whether the jobs may be the cause of the worker's end (see ``Worker.has_crashed``). If not, they become
        pending, and their attempts are recorded as RELEASED and do not count.

        With ``charge`` they become pending, too. If one job had begun, its ``crashes`` rise by one; if several had begun, the
        ``suspicions`` of each rise by one. When the sum of both is one below max_crashes, the job must run alone. When the sum
        reaches max_crashes, the job is poisoned, unless other jobs had begun on the same worker: any may be the cause.
        """
        ...

    async def expire(self, limit: int = 1000) -> Sequence[Job]:
        """Take back jobs with an expired lease from any worker, as ``release`` does.

        When a lease expires for the first time, it is extended once by its length: if the store was only unreachable, a
        live worker can still renew it. If the lease expires again, the job is taken back.
        """
        ...

    async def wait(self, pool_id: PoolId, within: timedelta) -> bool:
        """Wait until a job was pushed or released or came due, or a worker was asked to drain. Returns False if none of these
        happened within ``within``.

        The worker must try to claim even after False, since a notification can be lost. In a store without notifications, a
        drain request does not end the wait.
        """
        ...


class Jobs(Protocol):
    """Inspects, counts, cancels, requeues and prunes jobs."""

    async def get(self, job_id: JobId) -> Job:
        """Return the job with this id. Raises NotFound."""
        ...

    async def list(
        self,
        pool_id: PoolId,
        *,
        statuses: Sequence[JobStatus] = (),
        job_type: str | None = None,
        group: str | None = None,
        worker_id: WorkerId | None = None,
        holder: Holder | None = None,
        after: JobId | None = None,
        limit: int = 100,
    ) -> Sequence[Job]:
        """Return jobs in the order of pushing, starting after the job ``after``. ``worker_id`` selects jobs held by a worker of
        this pool, ``holder`` jobs held by a worker of any pool. Raises NotFound if this pool has no job ``after``."""
        ...

    async def attempts(self, job_id: JobId) -> Sequence[Attempt]:
        """Return a job's attempts, oldest first."""
        ...

    async def size(self, pool_id: PoolId, most: int = 10_000) -> int:
        """Count the ready jobs. The count stops at ``most``, which bounds the cost."""
        ...

    async def counts(self, pool_id: PoolId, most: int = 10_000) -> JobCounts:
        """Count the jobs in each state. Ended jobs are counted exactly, all others only up to ``most``."""
        ...

    async def ahead(self, job: Job, most: int = 10_000) -> int:
        """Count the ready jobs that would be claimed before this job of the same pool. The count stops at ``most``."""
        ...

    async def recent_claims(self, pool_id: PoolId, group: str, per: timedelta) -> int:
        """Count the jobs of a group that were claimed within the last ``per``; the group's rate limit bounds this number."""
        ...

    async def demand(
        self, pool_id: PoolId, most: int = 10_000, types: Sequence[str] = (), without: Sequence[str] = ()
    ) -> Mapping[str, int]:
        """Count ready jobs by the capability they need ('' for none), each up to ``most``. Of each group, counts only the
        jobs that its limit and rate allow to be claimed now. ``types``: only jobs of these types; empty: every type.
        ``without``: no jobs of these types."""
        ...

    async def by_type(self, pool_id: PoolId, most: int = 10_000, without: Sequence[str] = ()) -> Mapping[str, int]:
        """Count the ready jobs of each type except those in ``without``. Of more than ``most`` such jobs, only about the first
        ``most`` are counted, however many jobs of the excluded types come before them."""
        ...

    async def cancel(self, job_ids: Sequence[JobId]) -> Sequence[Job]:
        """Cancel pending and waiting jobs at once, and request that workers stop claimed jobs (see ``to_stop``, ``renew``).

        Returns the jobs after the change. Ignores jobs that have ended or do not exist. All are cancelled before the jobs that
        wait for them are updated, so a parent and its child can be cancelled in one call.
        """
        ...

    async def to_stop(self, holder: Holder) -> Sequence[Token]:
        """Return the tokens of a worker's jobs that must be cancelled. Cheap and read-only, so it can be polled often."""
        ...

    async def wait_alone(self, pool_id: PoolId) -> bool:
        """Whether the pool has ready jobs that must run alone, that is, with no other job on their worker."""
        ...

    async def overdue_in(self, claiming: ClaimRequest) -> timedelta | None:
        """Return how long to wait before calling ``expire`` to free a job that this worker could claim; zero: call it now.

        Considers only jobs with a lease that has expired and was not renewed since; returns None if there is no such job. The
        first call of ``expire`` extends the lease once; a call after the end of the extension takes the job back.
        """
        ...

    async def due(self, claiming: ClaimRequest) -> Due:
        """Find out whether a job that this worker could claim is due, and when the next one is due. Ignores group limits."""
        ...

    async def requeue(self, pool_id: PoolId, job_ids: Sequence[JobId]) -> Sequence[JobId]:
        """Make poisoned and cancelled jobs of a pool pending again, in one transaction. Returns the ids of the requeued jobs.
        Resets the counts of failures, crashes and suspicions (crashes perhaps caused by another job), and drops a retry
        delay; a job that never failed keeps its delay. Its recorded steps stay. Skips a job if another unfinished job has its
        unique key. A job waits again for its unfinished and failed parents, even if its ``if_failed`` is ``skip``; if that is
        ``run``, failed parents count as done."""
        ...

    async def parents(self, job_id: JobId, limit: int | None = None) -> Sequence[Job]:
        """Return the jobs that a job waits for or waited for, in the order of pushing, with their results; at most ``limit``
        of them. Raises NotFound."""
        ...

    async def children(self, job_id: JobId, limit: int = 1000) -> Sequence[Job]:
        """Return the jobs that wait for a job or waited for it, in the order of pushing. Raises NotFound."""
        ...

    async def child_elsewhere(self, pool_id: PoolId) -> Job | None:
        """Return an unfinished job of another pool that depends on a job of this pool; None if there is none."""
        ...

    async def of_workflow(
        self, workflow_id: str, *, statuses: Sequence[JobStatus] = (), after: JobId | None = None, limit: int = 1000
    ) -> Sequence[Job]:
        """Return the jobs of a workflow, of all pools, in the order of pushing, starting after the job ``after``."""
        ...

    async def workflow_counts(self, workflow_id: str) -> Mapping[JobStatus, int]:
        """Count the jobs of a workflow by status. A status without jobs is left out; no jobs at all: an empty mapping."""
        ...

    async def change_pending(
        self, pool_id: PoolId, job_ids: Sequence[JobId], *, priority: int | None = None, run_at: datetime | None = None
    ) -> Sequence[JobId]:
        """Change the priority, the earliest start, or both, of pending jobs of a pool. Returns the ids of the changed jobs.

        Ignores jobs that are claimed or have ended, and jobs of other pools. A ``run_at`` in the past makes a job ready.
        """
        ...

    async def progress(self, holder: Holder, token: Token, share: float, note: str | None = None) -> bool:
        """Record a job's progress (``share`` from 0 to 1). Returns False and records nothing if ``holder`` has lost the job."""
        ...

    async def prune(
        self,
        older_than: timedelta,
        statuses: Sequence[JobStatus] = (JobStatus.DONE, JobStatus.CANCELLED),
        on_progress: Callable[[int], object] | None = None,
    ) -> int:
        """Delete ended jobs older than ``older_than``, with their attempts and steps. Returns how many. Works in many short
        transactions with pauses; ``on_progress`` is called after each with the number of jobs deleted so far. A job
        stays while one of its children is unfinished."""
        ...
