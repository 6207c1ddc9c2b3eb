"""Queues of jobs. Claims are atomic and leased, with fencing; no job is lost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from drumbeat.core.job import Attempt, Job, JobCounts, JobId, JobOutcome, JobStatus, NewJob, Token
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Holder, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Claiming:
    """A worker's request for jobs."""

    pool_id: PoolId  #: the pool that has the jobs
    holder: Holder  #: the worker that will hold them
    lease: timedelta  #: how long the worker holds the jobs without a renewal
    limit: int = 1
    ahead: bool = False  #: prefetch: no attempt is counted until ``begin``
    alone: bool = False  #: the worker holds no other job, so it may get one that must run alone
    capabilities: tuple[str, ...] = ()
    types: tuple[str, ...] = ()  #: only jobs of these types; empty: every type

    def could_have(self, job_type: str, capability: str | None) -> bool:
        """Whether the worker may claim a job of this type that needs this capability."""
        return (not self.types or job_type in self.types) and (not capability or capability in self.capabilities)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """When pending jobs come due."""

    is_ready: bool  #: a job is due now
    next_in: timedelta | None  #: time until the next delayed job is due; None if there is none

    @property
    def wait(self) -> timedelta | None:
        """Time until a job is due; None if no job is pending."""
        return timedelta() if self.is_ready else self.next_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Which outcomes were refused, and the jobs claimed in the same transaction."""

    stale: tuple[Token, ...]  #: refused, nothing changed: the worker no longer holds the job, or the job has ended
    claimed: tuple[Job, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """The result of renewing a worker's claims."""

    stale: tuple[Token, ...]  #: no longer held by this worker: its writes for them are refused
    cancelled: tuple[Token, ...]  #: still held, but asked to be cancelled


class Queue(Protocol):
    """Pushing, claiming and settling jobs. Every method is one atomic operation; raises NotFound if the pool does not exist."""

    async def push(self, pool_id: PoolId, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        """Add jobs, all or none. Returns the id of each, in order. A job whose id, or whose unique key in an unfinished job,
        exists already is not added; the id of the existing job is returned for it. Wakes workers that wait for jobs."""
        ...

    async def claim(self, claiming: Claiming) -> Sequence[Job]:
        """Claim ready jobs, highest priority first, then oldest; no two claims ever get the same job.

        Increases the job's epoch, and counts an attempt unless it is claimed ahead. Skips jobs that are not due yet, whose
        group has reached its limit or rate, or whose capability the worker lacks. Returns no jobs of a paused pool, and none
        to a worker that was asked to drain, is draining or has ended. A worker without a row may claim.

        A job that must run alone goes only to a worker that holds no other job (``alone``), and is the only job returned: in
        its turn if ``limit`` is 1, else only when no other job is claimable.
        """
        ...

    async def begin(self, holder: Holder, tokens: Sequence[Token]) -> Sequence[Token]:
        """Begin jobs that were claimed ahead: counts an attempt for each. Returns the tokens that this worker no longer holds;
        it must not run those jobs. Harmless to repeat."""
        ...

    async def settle(self, holder: Holder, verdicts: Sequence[JobOutcome], claiming: Claiming | None = None) -> Settled:
        """Record the outcomes of claimed jobs, and claim more, in one transaction.

        DONE stores the result. FAILED and TIMED_OUT count a failure: the job is retried after ``retry_in``, or poisoned if it
        is fatal or its failures reach max_attempts. RELEASED makes the job pending at once and uncounts the attempt if it had
        begun. CANCELLED ends the job. If the worker no longer holds the job under the token, nothing changes and the token is
        returned as stale. Each outcome closes its row of the attempts log. ``claiming`` must be by the same holder.
        """
        ...

    async def renew(self, holder: Holder, tokens: Sequence[Token], lease: timedelta) -> Renewed:
        """Extend claims to ``lease`` from now. Returns which are no longer held and which are to be cancelled."""
        ...

    async def release(self, holder: Holder, error: str, *, fence: Fence | None = None) -> Sequence[Job]:
        """Take back all jobs that a lost worker held, in the queues of all pools. Jobs of a worker with the same id in another
        pool, or of another process under the same id, stay. Returns the jobs as they are now. Harmless to repeat.

        The jobs become pending. A job that had not begun is charged nothing. If one job had begun, it is charged a crash; if
        several had, each is charged a suspicion. Both count towards max_crashes: one short of it the job must run alone; at it
        the job is poisoned, if it was the only one that had begun.
        """
        ...

    async def expire(self, limit: int = 1000) -> Sequence[Job]:
        """Take back jobs whose lease has expired, of any worker, as ``release`` does.

        An expired lease is first extended once by its length, since the store may have been unreachable: a worker that is
        alive renews it. Only when it expires again is the job taken back.
        """
        ...

    async def wait(self, pool_id: PoolId, within: timedelta) -> bool:
        """Wait until a job may be claimable (a push, a release, a job that came due) or a worker was asked to drain, at most
        for ``within``. Returns whether that happened.

        May be wrong either way, so the worker claims afterwards in any case. Without notifications only jobs are noticed.
        """
        ...


class Jobs(Protocol):
    """Jobs to inspect, count, cancel, requeue and prune."""

    async def get(self, job_id: JobId) -> Job:
        """Raises NotFound."""
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
        """Jobs in the order of pushing, starting behind ``after``. ``worker_id`` is a worker of this pool, ``holder`` a worker
        of any pool."""
        ...

    async def attempts(self, job_id: JobId) -> Sequence[Attempt]:
        """A job's attempts, oldest first."""
        ...

    async def size(self, pool_id: PoolId, most: int = 10_000) -> int:
        """How many jobs are ready. The count stops at ``most``, which bounds its cost."""
        ...

    async def counts(self, pool_id: PoolId, most: int = 10_000) -> JobCounts:
        """How many jobs are in each state. Ended jobs are counted exactly, all others only up to ``most``."""
        ...

    async def ahead(self, job: Job, most: int = 10_000) -> int:
        """How many ready jobs of its pool would be claimed before this one; the count stops at ``most``."""
        ...

    async def recent_claims(self, pool_id: PoolId, group: str, per: timedelta) -> int:
        """How many jobs of a rate-limited group were claimed within the last ``per``: the number that its rate limits."""
        ...

    async def demand(self, pool_id: PoolId, most: int = 10_000, types: Sequence[str] = ()) -> Mapping[str, int]:
        """Ready jobs by the capability they need ('' for none), each up to ``most``. Of a group only as many are counted as its
        limit and rate allow to claim now. ``types``: only jobs of these types; empty: every type."""
        ...

    async def by_type(self, pool_id: PoolId, most: int = 10_000) -> Mapping[str, int]:
        """How many jobs of each type are ready. In a longer queue only about the first ``most`` jobs are counted."""
        ...

    async def cancel(self, job_ids: Sequence[JobId]) -> Sequence[Job]:
        """Cancel pending jobs at once; mark claimed jobs, so that their worker stops them (``to_stop``, ``renew``)."""
        ...

    async def to_stop(self, holder: Holder) -> Sequence[Token]:
        """The jobs of a worker that were asked to be cancelled. Cheap and read-only, so it can be polled often."""
        ...

    async def wait_alone(self, pool_id: PoolId) -> bool:
        """Whether the pool has ready jobs that must run alone."""
        ...

    async def overdue_in(self, claiming: Claiming) -> timedelta | None:
        """Time until ``expire`` can take back an expired claim among the jobs that this worker could claim; zero: now.

        None if no claim on such jobs has expired without being renewed since.
        """
        ...

    async def due(self, claiming: Claiming) -> Due:
        """Whether a job that this worker could claim is due, ignoring group limits, and when the next one is due."""
        ...

    async def requeue(self, pool_id: PoolId, job_ids: Sequence[JobId] | None = None) -> Sequence[JobId]:
        """Make poisoned and cancelled jobs pending again and reset their failures, crashes and suspicions; None: every poisoned
        job of the pool. A retry delay is dropped too; a job that never failed keeps its delay. Skips a job whose unique key
        another unfinished job has. Returns the jobs requeued."""
        ...

    async def progress(self, holder: Holder, token: Token, share: float, note: str | None = None) -> bool:
        """Record a job's progress. Returns False if the token is stale; then nothing is recorded."""
        ...

    async def prune(
        self,
        older_than: timedelta,
        statuses: Sequence[JobStatus] = (JobStatus.DONE, JobStatus.CANCELLED),
        told: Callable[[int], object] | None = None,
    ) -> int:
        """Delete ended jobs older than this, with their attempts; never unfinished ones. Returns how many. Works in many short
        steps with pauses; ``told`` is called after each with the number deleted so far."""
        ...
