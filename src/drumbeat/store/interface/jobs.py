"""Queues of jobs: claimed atomically, leased with fencing, never lost."""

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
    """Who asks for work, and for how much."""

    pool_id: PoolId  #: whose jobs
    holder: Holder  #: who will hold them
    lease: timedelta  #: how long the jobs are this worker's, unless it renews
    limit: int = 1
    ahead: bool = False  #: none of them begins yet: ``begin`` says when one does
    alone: bool = False  #: the worker holds nothing else: it may be given one job that must run alone
    capabilities: tuple[str, ...] = ()
    types: tuple[str, ...] = ()  #: only jobs of these types; none named: of every type

    def could_have(self, job_type: str, capability: str | None) -> bool:
        """Whether a job of this type that needs this capability may be this worker's."""
        return (not self.types or job_type in self.types) and (not capability or capability in self.capabilities)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """When pending jobs come due."""

    is_ready: bool  #: one is due now
    next_in: timedelta | None  #: how long until the first of the others comes due; None: there are no others

    @property
    def wait(self) -> timedelta | None:
        """How long until a job is due; None: none is pending."""
        return timedelta() if self.is_ready else self.next_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became of some verdicts, and the jobs that were claimed with the same breath."""

    stale: tuple[Token, ...]  #: refused: the job was taken from this worker, or has ended; nothing was changed for them
    claimed: tuple[Job, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """How a worker's claims stand."""

    stale: tuple[Token, ...]  #: no longer this worker's: whatever it does for them is refused
    cancelled: tuple[Token, ...]  #: still its own, but somebody asked for them to be stopped


class Queue(Protocol):
    """Jobs on the move. Every method is one atomic operation; a pool must exist (NotFound)."""

    async def push(self, pool_id: PoolId, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        """Keep jobs; all of them, or none. Answers with the id of each, in order: where a job of the same id, or an
        unfinished one of the same unique key, is there already, with that one's. Whoever waits for work is woken."""
        ...

    async def claim(self, claiming: Claiming) -> Sequence[Job]:
        """Take ready jobs, highest priority first, then oldest; no two claims ever get the same one.

        Raises the epoch, and counts an attempt unless it is claimed ahead. A job is passed over while its time has not come,
        its group is at its limit or rate, or this worker lacks its capability. Nothing is given from a paused pool, nor to a
        worker that was asked to drain, drains or has ended. A worker without a row may claim.

        A job that must run alone is given only to a worker that holds nothing else (``alone``), and by itself: in its turn to
        a claim of one job, and to a larger one when nothing else is claimable.
        """
        ...

    async def begin(self, holder: Holder, tokens: Sequence[Token]) -> Sequence[Token]:
        """Say that jobs claimed ahead begin now: counts an attempt for each. Answers with those that are no longer this
        worker's, which must not be begun. Harmless to repeat."""
        ...

    async def settle(self, holder: Holder, verdicts: Sequence[JobOutcome], claiming: Claiming | None = None) -> Settled:
        """Say what became of claimed jobs, and claim more, in one transaction.

        DONE keeps the result. FAILED and TIMED_OUT count a failure: the job is pending again after ``retry_in``, or poisoned
        when its failures reach max_attempts, or when it is fatal. RELEASED gives it back at once and takes back the attempt, if
        it had begun. CANCELLED ends it. A verdict whose token is not the job's present claim by this worker changes nothing and
        is answered as stale. Each closes its row of the attempts log. ``claiming`` is by the same holder.
        """
        ...

    async def renew(self, holder: Holder, tokens: Sequence[Token], lease: timedelta) -> Renewed:
        """Keep claims for ``lease`` from now, and hear which are gone or to be cancelled."""
        ...

    async def release(self, holder: Holder, error: str, *, fence: Fence | None = None) -> Sequence[Job]:
        """Take back everything a lost worker held, in whichever pool's queue, and nothing that a worker of the same id in
        another pool, or another process under the same name, holds. Answers with them as they are now. Harmless to repeat.

        All are pending again. A job that had not begun is charged nothing. Where one had begun, it counts a crash; where
        several had, each counts a suspicion. Together they count towards max_crashes, at which a job is poisoned if it was the
        only one that had begun; before that it must run alone.
        """
        ...

    async def expire(self, limit: int = 1000) -> Sequence[Job]:
        """The same for jobs whose lease has run out, whoever held them.

        A lease that runs out is first extended once, by its own length, since the store may have been out of reach: a holder
        that is alive renews it. Only a lease that runs out again is taken back.
        """
        ...

    async def wait(self, pool_id: PoolId, within: timedelta) -> bool:
        """Return once something may be claimable (a push, a release, a job that came due) or a worker
        was asked to leave, or after ``within``.

        May be wrong either way: whoever waits claims again afterwards, and where nothing can be heard only jobs are noticed.
        True: there is news.
        """
        ...


class Jobs(Protocol):
    """Jobs to look at and to decide about."""

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
        """Jobs in the order of their pushing; those that follow ``after``. ``worker_id`` is a worker of this pool,
        ``holder`` a worker of any pool."""
        ...

    async def attempts(self, job_id: JobId) -> Sequence[Attempt]:
        """A job's attempts, oldest first."""
        ...

    async def size(self, pool_id: PoolId, most: int = 10_000) -> int:
        """How many jobs are ready; the count stops at ``most``, so that it costs no more."""
        ...

    async def counts(self, pool_id: PoolId, most: int = 10_000) -> JobCounts:
        """How the queue stands. Jobs that ended are counted exactly, however many there are; the others up to ``most``."""
        ...

    async def ahead(self, job: Job, most: int = 10_000) -> int:
        """How many ready jobs of its pool would be claimed before this one; the count stops at ``most``."""
        ...

    async def recent_claims(self, pool_id: PoolId, group: str, per: timedelta) -> int:
        """How many jobs of a group with a rate were claimed within this time: what its rate is judged by."""
        ...

    async def demand(self, pool_id: PoolId, most: int = 10_000, types: Sequence[str] = ()) -> Mapping[str, int]:
        """Ready jobs by the capability they need ('' for none), each up to ``most``; of a group no more than its limit and its
        rate have room for now. Jobs of which nobody may claim any more count for nothing. ``types`` limits it to jobs of these
        types; none named: every type."""
        ...

    async def by_type(self, pool_id: PoolId, most: int = 10_000) -> Mapping[str, int]:
        """How many jobs of each type are ready. Of a longer queue only about ``most`` jobs are looked at, the first in line."""
        ...

    async def cancel(self, job_ids: Sequence[JobId]) -> Sequence[Job]:
        """Pending jobs end as cancelled; claimed ones are marked for their worker to hear (``to_stop``, ``renew``)."""
        ...

    async def to_stop(self, holder: Holder) -> Sequence[Token]:
        """What a worker holds that somebody has asked to be stopped. A cheap look, which changes nothing: to be taken often."""
        ...

    async def wait_alone(self, pool_id: PoolId) -> bool:
        """Whether ready jobs of the pool wait for a worker that runs nothing else."""
        ...

    async def overdue_in(self, claiming: Claiming) -> timedelta | None:
        """How long until ``expire`` can take back a claim that has run out, among jobs this worker could claim; zero: now.

        None: every claim on such jobs is kept by its holder. One that ran out and was renewed since is.
        """
        ...

    async def due(self, claiming: Claiming) -> Due:
        """Whether a job is due that this worker could claim but for limits of groups, and when the next comes due."""
        ...

    async def requeue(self, pool_id: PoolId, job_ids: Sequence[JobId] | None = None) -> Sequence[JobId]:
        """Poisoned and cancelled jobs are pending again, with their failures, crashes and suspicions forgotten; None: every
        poisoned one of the pool. A wait after a failure is forgotten too; a job that never failed keeps its delay. One whose
        unique key another unfinished job has is left. Answers with those requeued."""
        ...

    async def progress(self, holder: Holder, token: Token, share: float, note: str | None = None) -> bool:
        """Note how far a job is. False: the token is stale, and nothing was noted."""
        ...

    async def prune(
        self,
        older_than: timedelta,
        statuses: Sequence[JobStatus] = (JobStatus.DONE, JobStatus.CANCELLED),
        told: Callable[[int], object] | None = None,
    ) -> int:
        """Remove jobs that ended longer ago, with their attempts; never unfinished ones. Answers with how many. Done in many
        short steps, with pauses between them; ``told`` hears after each how many are gone so far."""
        ...
