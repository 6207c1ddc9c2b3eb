"""Pushing and claiming jobs, and recording their outcomes, in memory."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.errors import AlreadyExists, InvalidInput
from drumbeat.core.job import Attempt, AttemptOutcome, Job, JobId, JobOutcome, JobStatus, NewJob, Token
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.recovery import stays
from drumbeat.core.worker import Holder
from drumbeat.store.flow_rules import has_links, parents_first
from drumbeat.store.interface import ClaimRequest, RenewResult, SettleResult
from drumbeat.store.job_ids import check_keys, job_id_of
from drumbeat.store.job_outcomes import apply_outcome, apply_worker_loss, lost_attempt_outcome
from drumbeat.store.memory.flows import expect_parents, link, parents_within, pass_on_ends
from drumbeat.store.memory.ready import ClaimDetails, JobRows, changed_job
from drumbeat.store.memory.state import MemoryTable, PoolRows, operation, plain


class MemoryQueue(MemoryTable):
    @operation
    def push(self, pool_id: PoolId, jobs: Sequence[NewJob]) -> Sequence[JobId]:
        rows = self.state.queue_rows(pool_id)
        for job in jobs:
            self._expect_pushable(pool_id, job)
        order = parents_first(jobs) if has_links(jobs) else range(len(jobs))
        expect_parents(self.state, rows.jobs, jobs)
        parents = parents_within(rows.jobs, jobs) if has_links(jobs) else set[JobId]()
        payloads = [plain_json(job.payload, "payload") for job in jobs]
        ids: dict[int, JobId] = {}
        chosen: dict[JobId, JobId] = {}
        for place in order:
            job = jobs[place]
            after = [chosen.get(parent, parent) for parent in job.after]
            ids[place] = self._add(rows, job, payloads[place], after, has_children=job.job_id in parents)
            if job.job_id is not None:
                chosen.setdefault(job.job_id, ids[place])
        self.state.subscribers.notify(pool_id)
        return [ids[place] for place in range(len(jobs))]

    @operation
    def claim(self, claiming: ClaimRequest) -> Sequence[Job]:
        return self._claim(claiming)

    @operation
    def settle(self, holder: Holder, verdicts: Sequence[JobOutcome], claiming: ClaimRequest | None = None) -> SettleResult:
        if claiming:
            self.state.rows(claiming.pool_id)
        plain_verdicts = [verdict._replace(result=plain_json(verdict.result, "result")) for verdict in verdicts]
        ended = [self._settle(holder, verdict) for verdict in plain_verdicts]
        pass_on_ends(self.state, filter(None, ended))
        stale = [verdict.token for verdict, job in zip(plain_verdicts, ended, strict=True) if job is None]
        return SettleResult(stale=tuple(stale), claimed=tuple(self._claim(claiming)) if claiming else ())

    @operation
    def renew(self, holder: Holder, tokens: Sequence[Token], lease: timedelta) -> RenewResult:
        until = self.state.now() + lease
        stale, cancelled = [], []
        for token in tokens:
            job = self.state.held(holder, token)
            if job is None:
                stale.append(token)
                continue
            rows = self.state.rows(job.pool_id).jobs
            rows.put(changed_job(job, lease_until=until, lease_extended=False))
            rows.leases[job.job_id] = ClaimDetails(lease=lease)
            if job.cancel_requested:
                cancelled.append(token)
        return RenewResult(stale=tuple(stale), cancelled=tuple(cancelled))

    @operation
    def release(self, holder: Holder, error: str, *, charge: bool = True, fence: Fence | None = None) -> Sequence[Job]:
        self.state.admit(fence)
        return self._take_back([job for job in self._claimed() if job.holder == holder], lambda job: error, charge=charge)

    @operation
    def expire(self, limit: int = 1000) -> Sequence[Job]:
        now = self.state.now()
        expired = [job for job in self._claimed() if job.lease_until is not None and job.lease_until <= now]
        again = [job for job in expired if job.lease_extended][:limit]
        for job in [job for job in expired if not job.lease_extended][:limit]:
            longer = changed_job(job, lease_until=now + self._leased(job).lease, lease_extended=True)
            self.state.rows(job.pool_id).jobs.put(longer)
        return self._take_back(again, lambda job: f"the lease of {job.lease_owner} ran out")

    @operation
    def begin(self, holder: Holder, tokens: Sequence[Token]) -> Sequence[Token]:
        stale = []
        for token in tokens:
            job = self.state.held(holder, token)
            if job is None:
                stale.append(token)
            elif job.begun_at is None:
                rows, now = self.state.rows(job.pool_id).jobs, self.state.now()
                rows.put(changed_job(job, attempts=job.attempts + 1, begun_at=now))
                rows.attempts[job.job_id][-1] = replace(rows.attempts[job.job_id][-1], started_at=now)
        return stale

    async def wait(self, pool_id: PoolId, within: timedelta) -> bool:
        with self.state.faults.around():
            due = _next_due(self.state.rows(pool_id), self.state.now())
        left = within if due is None else min(within, due - self.state.now())
        return await self.state.subscribers.wait(pool_id, self.state.clock, left, due=left < within)

    def _expect_pushable(self, pool_id: PoolId, job: NewJob) -> None:
        check_keys(job)
        owner = self.state.job_pools.get(job.job_id) if job.job_id else None
        if owner not in (None, pool_id):
            raise AlreadyExists(f"job {job.job_id} already exists in pool {owner}; choose another id")

    def _add(self, rows: PoolRows, job: NewJob, payload: Any, parents: Sequence[JobId], *, has_children: bool) -> JobId:
        existing = rows.jobs.existing(job)
        if existing is not None:
            return existing
        self.state.last_job += 1
        job_id = job.job_id or job_id_of(self.state.last_job)
        rows.jobs.numbers[job_id] = self.state.last_job
        self.state.job_pools[job_id] = rows.pool.pool_id
        if job.unique_key is not None:
            rows.jobs.keys[job.unique_key] = job_id
        linked = link(self.state, job_id, parents, job) if parents else {}
        new = _new_job(rows.pool.pool_id, job_id, job, payload, self.state.now(), has_children=has_children, **linked)
        rows.jobs.keep(new, self.state.now())
        return job_id

    def _claim(self, claiming: ClaimRequest) -> list[Job]:
        rows = self.state.rows(claiming.pool_id)
        now = self.state.now()
        rows.jobs.promote(now)
        if not self._may_claim(rows, claiming):
            taken: list[Job] = []
        else:
            taken = self._take(rows, claiming, now)
            if not taken and claiming.alone and claiming.limit > 1:
                taken = self._take(rows, replace(claiming, limit=1), now)
        if len(taken) < claiming.limit:
            self.state.subscribers.mark_checked(claiming.pool_id)
        return taken

    def _take(self, rows: PoolRows, claiming: ClaimRequest, now: datetime) -> list[Job]:
        taken: list[Job] = []
        skipped: list[Job] = []
        for job in rows.jobs.take():
            if _fits(rows.jobs, job, claiming, now):
                taken.append(_take(rows.jobs, job, claiming, now))
            else:
                skipped.append(job)
            if len(taken) >= claiming.limit:
                break
        for job in skipped:
            rows.jobs.keep(job, now)
        return taken

    def _may_claim(self, rows: PoolRows, claiming: ClaimRequest) -> bool:
        holder_pool = self.state.pools.get(claiming.holder.pool_id)
        worker = holder_pool.workers.get(claiming.holder.worker_id) if holder_pool else None
        paused = rows.pool.paused_until is not None and rows.pool.paused_until > self.state.now()
        leaving = worker is not None and not (worker.is_live and stays(worker))
        replaced = worker is not None and claiming.holder.instance not in ("", worker.instance)
        return claiming.limit > 0 and not paused and not leaving and not replaced

    def _settle(self, holder: Holder, verdict: JobOutcome) -> Job | None:
        """Record a job's outcome. Returns the job after the change; None if this worker no longer holds the job."""
        job = self.state.held(holder, verdict.token)
        if job is None:
            return None
        return self._end_attempt(job, apply_outcome(job, verdict, self.state.now()), verdict.outcome, verdict.error)

    def _take_back(self, jobs: Sequence[Job], why: Callable[[Job], str], *, charge: bool = True) -> list[Job]:
        """Put jobs of ended workers back in the queue, or poison those with too many crashes; ``why`` returns a job's error."""
        now, others = self.state.now(), {job.holder: self._count_begun(job.holder) - 1 for job in jobs}
        after = []
        for job in jobs:
            outcome, error = lost_attempt_outcome(job, why(job), others[job.holder], charge=charge)
            ended = apply_worker_loss(job, error, now, in_company=others[job.holder] > 0, charge=charge)
            after.append(self._end_attempt(job, ended, outcome, error))
        pass_on_ends(self.state, after)
        return after

    def _count_begun(self, holder: Holder | None) -> int:
        """Return how many jobs a lost worker had begun. Stores the number with each of these jobs: if only some of them are
        taken back now, the same number is used when the others are taken back later."""
        begun = [job for job in self._claimed() if job.holder == holder and job.begun_at is not None]
        many = max([len(begun), *(self._leased(job).begun for job in begun)])
        for job in begun:
            self.state.rows(job.pool_id).jobs.leases[job.job_id] = replace(self._leased(job), begun=many)
        return many

    def _leased(self, job: Job) -> ClaimDetails:
        return self.state.rows(job.pool_id).jobs.leases[job.job_id]

    def _end_attempt(self, job: Job, after: Job, outcome: AttemptOutcome, error: str | None) -> Job:
        rows = self.state.rows(job.pool_id).jobs
        log = rows.attempts[job.job_id]
        log[-1] = replace(log[-1], ended_at=self.state.now(), outcome=outcome, error=error)
        rows.keep(after, self.state.now())
        if after.status is JobStatus.PENDING or job.group is not None:
            self.state.subscribers.notify(job.pool_id)
        return after

    def _claimed(self) -> Iterator[Job]:
        for rows in self.state.pools.values():
            yield from sorted(rows.jobs.of(JobStatus.CLAIMED), key=lambda job: rows.jobs.numbers[job.job_id])


def plain_json(value: Any, what: str) -> Any:
    """Return a copy of a value as plain JSON. Raises InvalidInput if JSON cannot express it."""
    try:
        return plain(value)
    except (TypeError, ValueError, OverflowError) as exc:
        raise InvalidInput(f"expected a job's {what} to be plain JSON, got {type(value).__name__}: {exc}") from exc


def _new_job(pool_id: PoolId, job_id: JobId, job: NewJob, payload: Any, now: datetime, **more: Any) -> Job:
    due = max(job.run_at or now, now + job.delay)
    return Job(
        job_id=job_id,
        pool_id=pool_id,
        payload=payload,
        type=job.type,
        priority=job.priority,
        max_attempts=job.max_attempts,
        max_crashes=job.max_crashes,
        backoff=job.backoff,
        timeout=job.timeout,
        unique_key=job.unique_key,
        group=job.group,
        group_limit=job.group_limit,
        group_rate=job.group_rate,
        capability=job.capability,
        not_before=due if due > now else None,
        created_at=now,
        workflow_id=job.workflow_id,
        **more,
    )


def _fits(rows: JobRows, job: Job, claiming: ClaimRequest, now: datetime) -> bool:
    """Whether this worker can run the job (by type, capability and whether it must run alone) and the job's group has room."""
    if not claiming.accepts(job.type):
        return False
    if job.must_run_alone and not (claiming.alone and claiming.limit == 1):
        return False
    if job.capability is not None and job.capability not in claiming.capabilities:
        return False
    limited = job.group is not None and job.group_limit is not None
    return rows.has_room(job, rows.running(job.group) if limited and job.group else 0, now)


def _take(rows: JobRows, job: Job, claiming: ClaimRequest, now: datetime) -> Job:
    taken = changed_job(
        job,
        status=JobStatus.CLAIMED,
        attempts=job.attempts + (not claiming.ahead),
        begun_at=None if claiming.ahead else now,
        lease_owner=claiming.holder.worker_id,
        lease_pool=claiming.holder.pool_id,
        lease_instance=claiming.holder.instance,
        lease_epoch=job.lease_epoch + 1,
        lease_until=now + claiming.lease,
        lease_extended=False,
        claimed_at=now,
        progress=None,
        progress_note=None,
    )
    rows.keep(taken, now)
    rows.leases[job.job_id] = ClaimDetails(lease=claiming.lease)
    attempt = Attempt(
        job_id=job.job_id,
        n=taken.lease_epoch,
        worker_id=claiming.holder.worker_id,
        worker_pool=claiming.holder.pool_id,
        started_at=now,
    )
    rows.attempts.setdefault(job.job_id, []).append(attempt)
    if job.group is not None and job.group_rate is not None:
        rows.note_claim(job.group, job.group_rate, now)
    return taken


def _next_due(rows: PoolRows, now: datetime) -> datetime | None:
    """Return the next time a job can become claimable because its delay, the pool's pause or its group's rate limit ends."""
    paused = rows.pool.paused_until
    freed = paused if paused is not None and paused > now and any(rows.jobs.ready()) else rows.jobs.next_freed(now)
    return min((moment for moment in (rows.jobs.next_due(), freed) if moment is not None), default=None)
