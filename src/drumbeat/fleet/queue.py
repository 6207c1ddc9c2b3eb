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
PAGES = 3  #: pages of new jobs counted in one beat; the next beat counts the rest
ENDED = 100  #: maximum number of finished jobs looked up in one beat
SAMPLED = 200  #: number of pending jobs from which types and due times are read


@dataclass(frozen=True, slots=True)
class QueueReader:
    """Reads a pool's queue and adds it to a fleet's view."""

    store: Store
    view: FleetView
    last: Beat | None

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
        demand = await jobs.demand(pool_id, COUNTED) if counts.ready else {}
        claimable = await self._claimable(demand)
        sample: Sequence[Job] = ()
        if (counts.ready or counts.delayed) and self.view.policy.policy is PolicyName.LAG_AWARE:
            sample = await jobs.list(pool_id, statuses=[JobStatus.PENDING], limit=SAMPLED)
        return QueueView(
            ready=claimable,
            blocked=max(counts.ready - claimable, 0),
            delayed=counts.delayed,
            claimed=counts.claimed,
            oldest_ready=counts.oldest_ready,
            due=tuple(sorted(job.not_before for job in sample if job.not_before and self._comes_due(job))),
            demand=demand,
            types=Counter(job.type for job in sample) if counts.ready else {},
        )

    async def _claimable(self, demand: Mapping[str, int]) -> int:
        """Count the ready jobs that the pool's workers could claim, given group limits, capabilities and job types."""
        plan = self.view.plan
        most = sum(count for needed, count in demand.items() if plan.offers(needed))
        handled = 0
        for kind in plan.types if most else ():
            page = await self.store.jobs.list(self.view.pool_id, statuses=[JobStatus.PENDING], job_type=kind, limit=PAGE)
            handled += len([job for job in page if not _is_delayed(job, self.view.now) and plan.offers(job.capability or "")])
            if len(page) == PAGE or handled >= most:
                return most
        return min(most, handled) if plan.types else most

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
        continues; None if no job was read so far."""
        cursor = self.view.state.cursor if self.view.state else None
        since = self.view.last.at if self.view.last else self.view.now
        minutes: Counter[datetime] = Counter()
        for _ in range(PAGES):
            page = await self._page(cursor)
            minutes.update(_minute(job.created_at) for job in page if job.created_at and job.created_at > since)
            cursor = page[-1].job_id if page else cursor
            if len(page) < PAGE:
                break
        return tuple(Arrivals(minute=minute, count=count) for minute, count in sorted(minutes.items())), cursor

    async def _page(self, cursor: JobId | None) -> Sequence[Job]:
        """Return jobs newer than ``cursor``, the last job counted. If ``cursor`` is None or deleted, return unfinished jobs."""
        jobs, pool_id = self.store.jobs, self.view.pool_id
        try:
            if cursor is not None:
                return await jobs.list(pool_id, after=cursor, limit=PAGE)
        except NotFound:
            log.info("pool %s: job %s, the last arrival counted, was deleted; counting only unfinished jobs", pool_id, cursor)
        return await jobs.list(pool_id, statuses=[JobStatus.PENDING, JobStatus.CLAIMED], limit=PAGE)

    async def _finished(self, held: Mapping[JobId, datetime]) -> list[Finished]:
        """Return the outcomes of jobs that ran at the last beat and do not run now, and of failed jobs that began since."""
        before = msgspec.convert((self.last.view or {}).get("held", []), tuple[HeldJob, ...]) if self.last else ()
        gone = [each for each in before if held.get(each.job_id) != each.claimed_at][:ENDED]
        outcomes = [await self._outcome(each) for each in gone]
        known = [each for each in outcomes if each is not None]
        return [*known, *self._short_failures(Counter(each.worker_id for each in known))]

    def _short_failures(self, known: Mapping[WorkerId, int]) -> Iterator[Finished]:
        """Yield failed jobs that began and ended since the last beat, for workers on which every job since then failed."""
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
