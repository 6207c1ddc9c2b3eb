"""Read a pool's queue: claimable jobs, held jobs, arrivals and finished jobs since the last beat. Every read is bounded."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec

from drumbeat.core.beat import Beat
from drumbeat.core.errors import NotFound, StoreError
from drumbeat.core.job import AttemptOutcome, Job, JobId, JobStatus
from drumbeat.core.worker import WorkerId, name_of
from drumbeat.fleet.model import Arrivals, Finished, FleetView, HeldJob, PolicyName, QueueView
from drumbeat.store.interface import Store

log = logging.getLogger(__name__)

HELD = 10_000  #: maximum number of claimed jobs read
COUNTED = 100_000  #: jobs are counted up to this number
PAGE = 1000
PAGES = 3  #: pages of new jobs read in one beat; the next beat reads on from there
ENDED = 100  #: maximum number of finished jobs looked up in one beat
GROUPS = 20  #: full groups that are looked up to find the oldest claimable job
SAMPLED = 200  #: number of pending jobs from which types and due times are read


@dataclass(frozen=True, slots=True)
class QueueReader:
    """Reads a pool's queue and adds it to a fleet's view."""

    store: Store
    view: FleetView
    last: Beat | None
    paused: frozenset[str] = frozenset()  #: job types that are not claimed

    async def read(self) -> FleetView:
        """Return the view with its queue. If the store fails, ``queue`` stays None, which means unknown, not empty."""
        try:
            held = await self._held()
            arrived, cursor = await self._arrived()
            return replace(
                self.view,
                queue=await self._queue(),
                held=held[:HELD],
                held_partial=len(held) > HELD,
                finished=tuple(await self._finished({each.job_id: each.claimed_at for each in held})),
                arrived=arrived,
                cursor=cursor,
            )
        except StoreError as exc:
            log.warning("failed to read the queue of pool %s: %s; the next beat tries again", self.view.pool_id, exc)
            return replace(self.view, held_partial=True)

    async def _queue(self) -> QueueView:
        jobs, pool_id = self.store.jobs, self.view.pool_id
        counts = await jobs.counts(pool_id, COUNTED)
        kinds = self._types_to_count() if counts.ready else None
        demand = {} if kinds is None else await jobs.demand(pool_id, COUNTED, *kinds)
        claimable = await self._claimable(demand)
        blocked = max(counts.ready - claimable, 0)
        needs_oldest = kinds is not None and claimable and blocked and self._exceeds_slo(counts.oldest_ready)
        sample: Sequence[Job] = ()
        if (counts.ready or counts.delayed) and self.view.policy.policy is PolicyName.LAG_AWARE:
            sample = self._without_paused(await jobs.list(pool_id, statuses=[JobStatus.PENDING], limit=SAMPLED))
        return QueueView(
            ready=claimable,
            blocked=blocked,
            delayed=counts.delayed,
            claimed=counts.claimed,
            oldest_ready=counts.oldest_ready,
            oldest_claimable=await self._oldest_claimable() if needs_oldest else None,
            due=tuple(sorted(job.not_before for job in sample if job.not_before and self._comes_due(job))),
            demand=demand,
            types=await self._types(sample) if counts.ready else {},
        )

    def _types_to_count(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Return the job types to count (empty: every type), and those to leave out; None if all handled types are paused."""
        types = self.view.plan.types if self.paused else ()
        left = tuple(kind for kind in types if kind not in self.paused)
        return None if types and not left else (left, tuple(sorted(self.paused)))

    async def _types(self, sample: Sequence[Job]) -> Mapping[str, int]:
        """Count jobs by type: those of the sample or, as paused jobs can fill it, ready jobs. Empty without a sample."""
        if not self.paused or self.view.policy.policy is not PolicyName.LAG_AWARE:
            return Counter(job.type for job in sample)
        return await self.store.jobs.by_type(self.view.pool_id, COUNTED, tuple(self.paused))

    def _without_paused(self, jobs: Sequence[Job]) -> Sequence[Job]:
        return [job for job in jobs if job.type not in self.paused] if self.paused else jobs

    async def _claimable(self, demand: Mapping[str, int]) -> int:
        """Count the ready jobs that the pool's workers could claim, given group limits, capabilities and job types."""
        plan = self.view.plan
        most = sum(count for needed, count in demand.items() if plan.offers(needed))
        handled = 0
        for kind in plan.types if most else ():
            if kind in self.paused:
                continue
            page = await self._pending(kind)
            handled += len([job for job in page if self._could_run(job)])
            if len(page) == PAGE or handled >= most:
                return most
        return min(most, handled) if plan.types else most

    async def _pending(self, kind: str | None) -> Sequence[Job]:
        """Return the first page of pending jobs of one type; of every type if ``kind`` is None."""
        return await self.store.jobs.list(self.view.pool_id, statuses=[JobStatus.PENDING], job_type=kind, limit=PAGE)

    def _could_run(self, job: Job) -> bool:
        """Whether a worker offers what this pending job of a handled type needs, and the job is due. Its group is ignored."""
        return not _is_delayed(job, self.view.now) and self.view.plan.offers(job.capability or "")

    def _exceeds_slo(self, since: datetime | None) -> bool:
        slo = self.view.policy.wait_slo
        return slo is not None and since is not None and self.view.now - since > slo

    async def _oldest_claimable(self) -> datetime | None:
        """Return the time since which the oldest claimable job has waited.

        Reads one page of each type. If all these jobs are blocked and more follow, returns the time since which every beat
        has found claimable jobs: no claimable job has waited longer.
        """
        pages = [await self._pending(kind) for kind in await self._unpaused_types()]
        due = [job for page in pages for job in page if self._could_run(job)]
        full: set[str | None] = set()
        for job in sorted(due, key=self._waits_since):
            if job.group in full:
                continue
            if await self._group_has_room(job):
                return self._waits_since(job)
            full.add(job.group)
            if len(full) == GROUPS:
                break
        is_complete = len(full) < GROUPS and all(len(page) < PAGE for page in pages)
        return None if is_complete or self.view.state is None else self.view.state.claimable_since

    async def _unpaused_types(self) -> Sequence[str | None]:
        """Return the types of the ready jobs that are handled and not paused; [None] for every type."""
        if not self.paused:
            return self.view.plan.types or (None,)
        wanted = self.view.plan.types or await self.store.jobs.by_type(self.view.pool_id, COUNTED, tuple(self.paused))
        return [kind for kind in wanted if kind not in self.paused]

    def _waits_since(self, job: Job) -> datetime:
        return job.not_before or job.created_at or self.view.now

    async def _group_has_room(self, job: Job) -> bool:
        """Whether the limits of the job's group allow one more job of the group to be claimed now."""
        jobs, limit, rate = self.store.jobs, job.group_limit, job.group_rate
        if job.group is None:
            return True
        if limit is not None:
            statuses, most = [JobStatus.CLAIMED], min(limit, HELD)
            if len(await jobs.list(job.pool_id, statuses=statuses, group=job.group, limit=most)) >= limit:
                return False
        return rate is None or await jobs.recent_claims(job.pool_id, job.group, rate.per) < rate.count

    def _comes_due(self, job: Job) -> bool:
        plan = self.view.plan
        handled = not plan.types or job.type in plan.types
        return handled and plan.offers(job.capability or "") and _is_delayed(job, self.view.now)

    async def _held(self) -> tuple[HeldJob, ...]:
        claimed = await self.store.jobs.list(self.view.pool_id, statuses=[JobStatus.CLAIMED], limit=HELD + 1)
        rows = {row.worker_id: row for row in self.view.workers}
        return tuple(
            HeldJob(
                job_id=job.job_id,
                worker_id=name_of(job.holder, job.pool_id, rows),
                claimed_at=job.claimed_at or self.view.now,
                type=job.type,
                lease_until=job.lease_until,
                timeout=job.timeout or self.view.plan.timeout,
                progress=job.progress,
            )
            for job in claimed
            if job.holder is not None
        )

    async def _arrived(self) -> tuple[tuple[Arrivals, ...], JobId | None]:
        """Count the jobs that arrived since the last beat, by minute. Also return the last job read, after which the next beat
        continues; None if no job was read so far. Jobs that the last beat could not read are counted too."""
        cursor = self.view.state.cursor if self.view.state else None
        since = self.view.last.at if self.view.last else self.view.now
        minutes: Counter[datetime] = Counter()
        for n in range(PAGES):
            page, is_next = await self._page(cursor)
            since = self._unread_since(page, since) if is_next and n == 0 else since
            new = [job.created_at for job in self._without_paused(page) if job.created_at and job.created_at > since]
            minutes.update(map(_minute, new))
            cursor = page[-1].job_id if page else cursor
            if len(page) < PAGE:
                break
        return tuple(Arrivals(minute=minute, count=count) for minute, count in sorted(minutes.items())), cursor

    def _unread_since(self, page: Sequence[Job], since: datetime) -> datetime:
        """Return the time from which on the jobs of this and later pages count as arrivals: ``since`` (the last beat), or when
        counting began if the last beat counted at least a page of jobs and stopped before the first job of this page."""
        state = self.view.state
        if state is None or not state.arrivals or state.arrivals[-1][1] < PAGE or not page:
            return since
        is_unread = (page[0].created_at or since) < since
        return state.counted_from or since if is_unread else since

    async def _page(self, cursor: JobId | None) -> tuple[Sequence[Job], bool]:
        """Return jobs newer than ``cursor``, the last job counted, and True. If ``cursor`` is None or deleted, return
        unfinished jobs and False."""
        jobs, pool_id = self.store.jobs, self.view.pool_id
        try:
            if cursor is not None:
                return await jobs.list(pool_id, after=cursor, limit=PAGE), True
        except NotFound:
            log.info(
                "pool %s: job %s, after which new jobs are counted, was deleted; this beat counts unfinished jobs only",
                pool_id,
                cursor,
            )
        return await jobs.list(pool_id, statuses=[JobStatus.PENDING, JobStatus.CLAIMED], limit=PAGE), False

    async def _finished(self, held: Mapping[JobId, datetime]) -> list[Finished]:
        """Return the outcomes of jobs that ran at the last beat but do not run now, and of failed jobs that began after it."""
        before = msgspec.convert((self.last.view or {}).get("held", []), tuple[HeldJob, ...]) if self.last else ()
        gone = [each for each in before if held.get(each.job_id) != each.claimed_at][:ENDED]
        outcomes = [await self._outcome(each) for each in gone]
        known = [each for each in outcomes if each is not None]
        return [*known, *self._short_failures(Counter(each.worker_id for each in known))]

    def _short_failures(self, known: Mapping[WorkerId, int]) -> Iterator[Finished]:
        """Yield failed jobs that began and ended since the last beat, of workers on which all jobs since then failed."""
        rows = [each for each in self.view.workers if each.errors and each.is_live]
        earlier = (self.last.view or {}).get("workers", ()) if self.last and rows else ()
        before = {(each["worker_id"], each.get("instance")): each for each in earlier}
        for row in rows:
            was = before.get((row.worker_id, row.instance), {})
            failed, ended = row.errors - was.get("errors", 0), row.operations - was.get("operations", 0)
            new = min(failed, self.view.policy.max_task_failures) - known.get(row.worker_id, 0) if failed == ended else 0
            for _ in range(new):
                yield Finished(worker_id=row.worker_id, took=timedelta(), ok=False, at=self.view.now)

    async def _outcome(self, held: HeldJob) -> Finished | None:
        try:
            job = await self.store.jobs.get(held.job_id)
        except NotFound:
            return None
        if job.status is JobStatus.DONE and job.claimed_at == held.claimed_at and job.finished_at:
            took = job.finished_at - held.claimed_at
            return Finished(worker_id=held.worker_id, took=took, type=held.type, at=job.finished_at)
        return await self._attempt(held)

    async def _attempt(self, held: HeldJob) -> Finished | None:
        """Return the worker's last attempt at a job in which the handler finished, failed or timed out; None if none did."""
        for attempt in reversed(await self.store.jobs.attempts(held.job_id)):
            own = (attempt.worker_pool, attempt.worker_id) == (self.view.pool_id, held.worker_id)
            if own and attempt.ended_at and attempt.outcome in _CONCLUSIVE:
                took, ok = attempt.ended_at - attempt.started_at, attempt.outcome is AttemptOutcome.DONE
                return Finished(worker_id=held.worker_id, took=took, type=held.type, ok=ok, at=attempt.ended_at)
        return None


_CONCLUSIVE = frozenset({AttemptOutcome.DONE, AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT})


def _is_delayed(job: Job, now: datetime) -> bool:
    return job.not_before is not None and job.not_before > now


def _minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)
