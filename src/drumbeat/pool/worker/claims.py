"""The calls that one worker makes to the job queue: claim jobs, write outcomes, renew leases."""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from drumbeat.core.errors import NotFound
from drumbeat.core.job import Job, JobId, JobOutcome, JobStatus, Token
from drumbeat.core.job_step import NewStep
from drumbeat.core.pool import PoolId
from drumbeat.core.recovery import stays
from drumbeat.core.worker import NOT_LOADED, TYPES, Holder
from drumbeat.pool.paused_types import ClaimableTypes, TypeFilter, claimable_types
from drumbeat.pool.worker.taken_back import TakenBackJobs
from drumbeat.store.interface import ClaimRequest, Jobs, JobSteps, Leases, Queue, RenewResult, SettleResult, Workers

log = logging.getLogger(__name__)

_MOST_HELD = 10_000


@dataclass(slots=True, kw_only=True)
class Claims:
    """The job queue for one worker: every call uses the worker's identity, lease, capabilities and job types."""

    queue: Queue
    jobs: Jobs
    steps: JobSteps
    workers: Workers
    leases: Leases
    pool_id: PoolId
    holder: Holder  #: the claiming worker and its process
    lease: timedelta
    capabilities: tuple[str, ...] = ()
    types: tuple[str, ...] = ()  #: job types that the worker has handlers for; empty: every type
    not_loaded: Mapping[str, str] = field(default_factory=dict)  #: types whose handler cannot be loaded, with the cause
    store_url: str | None = None  #: the store's URL, for handlers that complete jobs in transactions of their own
    claimable: ClaimableTypes | None = None  #: which types are paused; None: paused types are not looked up
    ahead: bool = False  #: jobs are prefetched (claimed before a slot is free); ``begin`` reports their start
    taken_back: TakenBackJobs = field(default_factory=TakenBackJobs)  #: gets the jobs that ``expire`` took back

    def limit_to(self, types: Iterable[str], not_loaded: Mapping[str, str]) -> None:
        """Claim only jobs of the types in ``types``, whose handlers are loaded, and none of the types in ``not_loaded``.

        The type '' stands for a default handler: then jobs of all types except ``not_loaded`` are claimed.
        """
        loaded = tuple(types)
        self.types = () if "" in loaded else loaded
        self.not_loaded = not_loaded

    @property
    def worker_meta(self) -> Mapping[str, Any]:
        """Fields for the worker's row: its job types (absent if it runs every type), and types whose handler failed to load."""
        types = {TYPES: sorted(self.types)} if self.types else {}
        return {**types, NOT_LOADED: {**self.not_loaded}} if self.not_loaded else types

    async def settle(self, verdicts: Sequence[JobOutcome], limit: int, *, alone: bool = False) -> SettleResult:
        """Write job outcomes and claim up to ``limit`` jobs, in one transaction.

        ``alone``: this worker runs no other job, so it can also claim a job that must run alone.
        """
        types = await self._types_to_claim() if limit > 0 else None
        claiming = None if types is None else self._claiming(limit, types, alone=alone)
        if not verdicts:
            claimed = await self.queue.claim(claiming) if claiming is not None else ()
            return SettleResult(stale=(), claimed=tuple(claimed))
        return await self.queue.settle(self.holder, verdicts, claiming)

    async def _types_to_claim(self) -> TypeFilter | None:
        """Return the job types that this worker can run and that are not paused; None if there are none."""
        if self.claimable is None:
            return claimable_types(self.types, self.not_loaded)
        return await self.claimable.of(self.types, self.not_loaded)

    def _claiming(self, limit: int, types: TypeFilter, *, alone: bool) -> ClaimRequest:
        return ClaimRequest(
            pool_id=self.pool_id,
            holder=self.holder,
            lease=self.lease,
            limit=limit,
            ahead=self.ahead,
            alone=alone,
            capabilities=self.capabilities,
            types=types.types,
            without=types.without,
        )

    async def renew(self, tokens: Sequence[Token]) -> RenewResult:
        return await self.queue.renew(self.holder, tokens, self.lease)

    async def begin(self, token: Token) -> bool:
        """Report that a prefetched job begins now. Returns False if the job was taken from this worker."""
        return not await self.queue.begin(self.holder, [token])

    async def acquire_alone_lease(self) -> bool:
        """Acquire the lease to claim a job that must run alone. False: no such job is ready, or another worker has it."""
        if not await self.jobs.wait_alone(self.pool_id):
            return False
        owner = f"{self.holder.worker_id} {self.holder.instance}"
        return await self.leases.acquire(f"alone/{self.pool_id}", owner, self.lease * 3) is not None

    async def held(self) -> Sequence[Job]:
        """Read from the store which jobs this worker holds."""
        return await self.jobs.list(self.pool_id, statuses=[JobStatus.CLAIMED], holder=self.holder, limit=_MOST_HELD)

    async def parents(self, job_id: JobId) -> Sequence[Job]:
        """Read the jobs that a job waited for, with their results."""
        return await self.jobs.parents(job_id)

    async def record_steps(self, steps: Sequence[NewStep]) -> Sequence[Token]:
        """Record steps of this worker's jobs. Returns the tokens of jobs that were taken from this worker."""
        return await self.steps.record(self.holder, steps)

    async def find(self, job_id: JobId) -> Job | None:
        """Read a job from the store; None if it was deleted."""
        with suppress(NotFound):
            return await self.jobs.get(job_id)
        return None

    async def to_stop(self) -> Sequence[Token]:
        """Read which of this worker's jobs must stop because their cancellation was requested."""
        return await self.jobs.to_stop(self.holder)

    async def tell_progress(self, token: Token, share: float, note: str | None) -> bool:
        return await self.jobs.progress(self.holder, token, share, note)

    async def must_leave(self) -> bool:
        """Whether this worker was ordered to exit. Raises NotFound if it has no row."""
        return not stays(await self.workers.get(self.holder.pool_id, self.holder.worker_id))

    async def wait(self, within: timedelta) -> bool:
        return await self.queue.wait(self.pool_id, within)

    async def overdue_in(self) -> timedelta | None:
        """Return how long until this worker can take over a job whose lease has expired; None if there is no such job.

        There is a wait because the store extends an expired lease once, by its length, before it takes the job back.
        """
        types = await self._types_to_claim()
        return None if types is None else await self.jobs.overdue_in(self._claiming(1, types, alone=True))

    async def expire(self) -> Sequence[Job]:
        """Take back the jobs with an expired lease, of all pools. As every worker does this, no controller is needed for it."""
        jobs = await self.queue.expire()
        for pool_id, count in Counter(job.pool_id for job in jobs).items():
            log.warning("took back %d jobs of pool %s: their leases were no longer renewed", count, pool_id)
        if jobs:
            self.taken_back.add(jobs)
        return jobs
