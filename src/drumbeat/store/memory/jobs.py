"""Inspecting, counting, cancelling, requeueing and pruning jobs, in memory."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice

from drumbeat.core.errors import NotFound
from drumbeat.core.job import ENDED, UNFINISHED, Attempt, Job, JobCounts, JobId, JobStatus, Token
from drumbeat.core.pool import PoolId
from drumbeat.core.retention import Prunable
from drumbeat.core.worker import Holder, WorkerId
from drumbeat.store.interface import ClaimRequest, Due
from drumbeat.store.memory.flows import child_elsewhere, pass_on_ends, reopen, wait_again
from drumbeat.store.memory.ready import JobRows
from drumbeat.store.memory.state import MemoryTable, operation
from drumbeat.store.memory.upkeep import MemoryUpkeep
from drumbeat.store.pruning import prune_all

_REQUEUED = frozenset({JobStatus.POISONED, JobStatus.CANCELLED})


def _with_statuses(rows: JobRows, statuses: Sequence[JobStatus]) -> Iterable[Job]:
    """Return the jobs with these statuses (empty: all jobs), in the order in which they were pushed."""
    if not statuses or JobStatus.DONE in statuses:
        return (job for job in rows.jobs.values() if not statuses or job.status in statuses)
    return sorted(
        (job for status in dict.fromkeys(statuses) for job in rows.of(status)), key=lambda job: rows.numbers[job.job_id]
    )


class MemoryJobs(MemoryTable):
    @operation
    def get(self, job_id: JobId) -> Job:
        return self._get(job_id)

    @operation
    def list(
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
        rows = self._rows(pool_id)
        after_number = self._number(rows, after)
        found = (
            job
            for job in _with_statuses(rows, statuses)
            if rows.numbers[job.job_id] > after_number
            and job_type in (None, job.type)
            and group in (None, job.group)
            and (worker_id is None or (job.lease_pool, job.lease_owner) == (pool_id, worker_id))
            and holder in (None, job.holder)
        )
        return [*islice(found, limit)]

    @operation
    def attempts(self, job_id: JobId) -> Sequence[Attempt]:
        rows = self._rows(self._get(job_id).pool_id)
        return [*rows.attempts.get(job_id, ())]

    @operation
    def size(self, pool_id: PoolId, most: int = 10_000) -> int:
        return sum(1 for _ in islice(self._ready(pool_id), most))

    @operation
    def counts(self, pool_id: PoolId, most: int = 10_000) -> JobCounts:
        rows = self._rows(pool_id)
        ready = [*islice(self._ready(pool_id), most)]
        count = {status: len(rows.by_status[status]) for status in JobStatus}
        pending = count[JobStatus.PENDING] - sum(1 for _ in self._ready(pool_id))
        since = [job.not_before or job.created_at for job in ready]
        return JobCounts(
            ready=len(ready),
            delayed=min(pending, most),
            waiting=min(count[JobStatus.WAITING], most),
            claimed=min(count[JobStatus.CLAIMED], most),
            done=count[JobStatus.DONE],
            poisoned=count[JobStatus.POISONED],
            cancelled=count[JobStatus.CANCELLED],
            done_so_far=count[JobStatus.DONE] + rows.pruned[JobStatus.DONE],
            poisoned_so_far=count[JobStatus.POISONED] + rows.pruned[JobStatus.POISONED],
            oldest_ready=min((at for at in since if at is not None), default=None),
        )

    @operation
    def ahead(self, job: Job, most: int = 10_000) -> int:
        rows = self._rows(job.pool_id)
        position = (-job.priority, rows.numbers[self._get(job.job_id).job_id])
        before = (each for each in self._ready(job.pool_id) if (-each.priority, rows.numbers[each.job_id]) < position)
        return sum(1 for _ in islice(before, most))

    @operation
    def recent_claims(self, pool_id: PoolId, group: str, per: timedelta) -> int:
        return sum(at > self.state.now() - per for at in self._rows(pool_id).claims.get(group, ()))

    @operation
    def demand(
        self, pool_id: PoolId, most: int = 10_000, types: Sequence[str] = (), without: Sequence[str] = ()
    ) -> Mapping[str, int]:
        rows = self._rows(pool_id)
        wanted = (job for job in self._in_order(pool_id) if job.type not in without)
        in_order = [job for job in wanted if not types or job.type in types]
        running = Counter(job.group for job in rows.of(JobStatus.CLAIMED))
        places, needed = Counter[str | None](), Counter[str]()
        for job in in_order:
            limited = job.group_limit is not None or job.group_rate is not None
            places[job.group] += limited
            if not limited or rows.has_room(job, running[job.group], self.state.now(), places[job.group]):
                needed[job.capability or ""] += 1
        return {capability: min(count, most) for capability, count in needed.items()}

    @operation
    def by_type(self, pool_id: PoolId, most: int = 10_000, without: Sequence[str] = ()) -> Mapping[str, int]:
        wanted = (job.type for job in self._in_order(pool_id) if job.type not in without)
        return Counter(islice(wanted, most))

    @operation
    def cancel(self, job_ids: Sequence[JobId]) -> Sequence[Job]:
        found = filter(None, map(self.state.find_job, dict.fromkeys(job_ids)))
        cancelled = [self._cancel(job) for job in found if job.status in UNFINISHED]
        pass_on_ends(self.state, cancelled)
        return cancelled

    @operation
    def to_stop(self, holder: Holder) -> Sequence[Token]:
        claimed = (job for rows in self.state.pools.values() for job in rows.jobs.of(JobStatus.CLAIMED))
        return [job.token for job in claimed if job.holder == holder and job.cancel_requested]

    @operation
    def wait_alone(self, pool_id: PoolId) -> bool:
        return any(job.must_run_alone for job in self._ready(pool_id))

    @operation
    def overdue_in(self, claiming: ClaimRequest) -> timedelta | None:
        now = self.state.now()
        ends = [
            job.lease_until
            for job in self._rows(claiming.pool_id).jobs.values()
            if job.status is JobStatus.CLAIMED
            and job.lease_until is not None
            and (job.lease_extended or job.lease_until <= now)
            and claiming.could_have(job.type, job.capability)
        ]
        return max(min(ends) - now, timedelta()) if ends else None

    @operation
    def due(self, claiming: ClaimRequest) -> Due:
        now = self.state.now()
        pending = [job for job in self._rows(claiming.pool_id).jobs.values() if job.status is JobStatus.PENDING]
        waits = [
            max((job.not_before or now) - now, timedelta()) for job in pending if claiming.could_have(job.type, job.capability)
        ]
        return Due(is_ready=timedelta() in waits, next_in=min(filter(None, waits), default=None))

    @operation
    def requeue(self, pool_id: PoolId, job_ids: Sequence[JobId]) -> Sequence[JobId]:
        rows = self._rows(pool_id)
        named = [rows.jobs.get(job_id) for job_id in dict.fromkeys(job_ids)]
        jobs = [job for job in named if job and job.status in _REQUEUED]
        jobs.sort(key=lambda job: rows.numbers[job.job_id])
        return [job.job_id for job in jobs if self._requeue(rows, job)]

    @operation
    def change_pending(
        self, pool_id: PoolId, job_ids: Sequence[JobId], *, priority: int | None = None, run_at: datetime | None = None
    ) -> Sequence[JobId]:
        rows, now = self._rows(pool_id), self.state.now()
        named = [rows.jobs.get(job_id) for job_id in dict.fromkeys(job_ids)]
        pending = [job for job in named if job and job.status is JobStatus.PENDING]
        rows.unlist({job.job_id for job in pending})
        for job in pending:
            due = job.not_before if run_at is None else max(run_at, now)
            rows.keep(replace(job, priority=job.priority if priority is None else priority, not_before=due), now)
        if pending:
            self.state.subscribers.notify(pool_id)
        return [job.job_id for job in pending]

    @operation
    def progress(self, holder: Holder, token: Token, share: float, note: str | None = None) -> bool:
        job = self.state.held(holder, token)
        if job is None:
            return False
        self._rows(job.pool_id).put(replace(job, progress=share, progress_note=note))
        return True

    @operation
    def parents(self, job_id: JobId, limit: int | None = None) -> Sequence[Job]:
        return self._by_number(self.state.parents.get(self._get(job_id).job_id, ()))[:limit]

    @operation
    def children(self, job_id: JobId, limit: int = 1000) -> Sequence[Job]:
        return self._by_number(self.state.children.get(self._get(job_id).job_id, ()))[:limit]

    @operation
    def child_elsewhere(self, pool_id: PoolId) -> Job | None:
        return child_elsewhere(self.state, pool_id)

    @operation
    def of_workflow(
        self, workflow_id: str, *, statuses: Sequence[JobStatus] = (), after: JobId | None = None, limit: int = 1000
    ) -> Sequence[Job]:
        jobs = self._by_number(job.job_id for job in self._of_workflow(workflow_id) if not statuses or job.status in statuses)
        after_number = 0 if after is None else self._job_number(self._get(after))
        return [job for job in jobs if self._job_number(job) > after_number][:limit]

    @operation
    def workflow_counts(self, workflow_id: str) -> Mapping[JobStatus, int]:
        return Counter(job.status for job in self._of_workflow(workflow_id))

    async def prune(
        self,
        older_than: timedelta,
        statuses: Sequence[JobStatus] = (JobStatus.DONE, JobStatus.CANCELLED),
        on_progress: Callable[[int], object] | None = None,
    ) -> int:
        kinds = [Prunable(status) for status in statuses if status in ENDED]
        return (await prune_all(MemoryUpkeep(self.state), [*self.state.pools], kinds, older_than, on_progress)).total()

    def _of_workflow(self, workflow_id: str) -> Iterator[Job]:
        return (job for rows in self.state.pools.values() for job in rows.jobs.jobs.values() if job.workflow_id == workflow_id)

    def _by_number(self, job_ids: Iterable[JobId]) -> Sequence[Job]:
        """Return the jobs with these ids that still exist, in the order in which they were pushed."""
        return sorted(filter(None, map(self.state.find_job, job_ids)), key=self._job_number)

    def _job_number(self, job: Job) -> int:
        return self._rows(job.pool_id).numbers[job.job_id]

    def _rows(self, pool_id: PoolId) -> JobRows:
        rows = self.state.pools.get(pool_id)
        return rows.jobs if rows else JobRows()

    def _get(self, job_id: JobId) -> Job:
        job = self.state.find_job(job_id)
        if job is None:
            raise NotFound(f"there is no job {job_id!r}: it was never pushed, or was deleted")
        return job

    def _number(self, rows: JobRows, job_id: JobId | None) -> int:
        if job_id is None:
            return 0
        if job_id not in rows.numbers:
            raise NotFound(f"cannot list the jobs after {job_id!r}: this pool has no such job; list from the start")
        return rows.numbers[job_id]

    def _ready(self, pool_id: PoolId) -> Iterator[Job]:
        rows = self._rows(pool_id)
        rows.promote(self.state.now())
        return rows.ready()

    def _in_order(self, pool_id: PoolId) -> Sequence[Job]:
        rows = self._rows(pool_id)
        return sorted(self._ready(pool_id), key=lambda job: (-job.priority, rows.numbers[job.job_id]))

    def _cancel(self, job: Job) -> Job:
        if job.status is JobStatus.CLAIMED:
            changed = replace(job, cancel_requested=True)
        else:
            changed = replace(job, status=JobStatus.CANCELLED, waits_for=0, finished_at=self.state.now())
        self._rows(job.pool_id).put(changed)
        return changed

    def _requeue(self, rows: JobRows, job: Job) -> bool:
        if job.unique_key is not None and rows.holder(job.unique_key):
            return False
        now = self.state.now()
        was_tried = job.failures or job.crashes or job.suspicions
        if job.unique_key is not None:
            rows.keys[job.unique_key] = job.job_id
        requeued = replace(
            job,
            status=JobStatus.PENDING,
            failures=0,
            crashes=0,
            suspicions=0,
            cancel_requested=False,
            finished_at=None,
            not_before=now if was_tried else max(job.not_before or now, now),
        )
        rows.keep(wait_again(self.state, requeued), now)
        if job.has_children:
            reopen(self.state, job)
        self.state.subscribers.notify(job.pool_id)
        return True
