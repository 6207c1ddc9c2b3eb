"""A pool's jobs in memory, with two heaps: ready jobs in claim order, and delayed jobs by the time they become ready."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Any

from drumbeat.core.job import UNFINISHED, Attempt, Job, JobId, JobStatus, NewJob, RateLimit
from drumbeat.core.job_step import JobStep


def changed_job(job: Job, **changes: Any) -> Job:
    """Return a copy of a job with other values in these fields, like ``dataclasses.replace``, but several times as fast."""
    return Job.from_fields(vars(job) | changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimDetails:
    """Facts about a claim that are not fields of the job's row."""

    lease: timedelta
    begun: int = 0  #: how many jobs the worker had begun when it was found lost


@dataclass(slots=True, kw_only=True)
class JobRows:
    """A pool's jobs in the order in which they were pushed, with their attempts, claims and unique keys."""

    jobs: dict[JobId, Job] = field(default_factory=dict)  #: changed only by ``put`` and ``remove``
    by_status: dict[JobStatus, dict[JobId, None]] = field(default_factory=lambda: {status: {} for status in JobStatus})
    pruned: Counter[JobStatus] = field(default_factory=Counter)  #: how many ended jobs were deleted because they were old
    numbers: dict[JobId, int] = field(default_factory=dict)
    attempts: dict[JobId, list[Attempt]] = field(default_factory=dict)
    steps: dict[JobId, dict[int, JobStep]] = field(default_factory=dict)  #: of jobs with steps: by position
    leases: dict[JobId, ClaimDetails] = field(default_factory=dict)  #: the last claim of each job
    claims: dict[str, list[datetime]] = field(default_factory=dict)  #: by rate-limited group: the times of its claims
    keys: dict[str, JobId] = field(default_factory=dict)  #: by unique key: the last job that has it
    _ready: list[tuple[int, int, JobId]] = field(default_factory=list)
    _delayed: list[tuple[datetime, int, JobId]] = field(default_factory=list)
    _listed: set[JobId] = field(default_factory=set)  #: the jobs in ``_ready``

    def keep(self, job: Job, now: datetime) -> None:
        """Write a job's row and, if the job is pending, add it to the ready or the delayed jobs."""
        self.put(job)
        if job.status is not JobStatus.PENDING:
            return
        if job.not_before is not None and job.not_before > now:
            heappush(self._delayed, (job.not_before, self.numbers[job.job_id], job.job_id))
        else:
            self._list(job)

    def put(self, job: Job) -> None:
        """Write a job's row and index it by status."""
        before = self.jobs.get(job.job_id)
        if before is not None and before.status is not job.status:
            del self.by_status[before.status][job.job_id]
        self.jobs[job.job_id] = job
        self.by_status[job.status][job.job_id] = None

    def of(self, status: JobStatus) -> Iterator[Job]:
        """Return the jobs with this status, in no particular order."""
        return (self.jobs[job_id] for job_id in self.by_status[status])

    def remove(self, job_id: JobId) -> None:
        del self.by_status[self.jobs[job_id].status][job_id]
        del self.jobs[job_id], self.numbers[job_id]
        self.attempts.pop(job_id, None)
        self.steps.pop(job_id, None)
        self.leases.pop(job_id, None)

    def unlist(self, job_ids: Collection[JobId]) -> None:
        """Remove pending jobs from the ready and the delayed jobs. Call ``keep`` to add them again at their new position."""
        self._ready = [each for each in self._ready if each[2] not in job_ids]
        self._delayed = [each for each in self._delayed if each[2] not in job_ids]
        heapify(self._ready)
        heapify(self._delayed)
        self._listed.difference_update(job_ids)

    def promote(self, now: datetime) -> None:
        """Move delayed jobs with a start time up to ``now`` to the ready jobs."""
        while self._delayed and self._delayed[0][0] <= now:
            due, _, job_id = heappop(self._delayed)
            job = self.jobs.get(job_id)
            if job and job.status is JobStatus.PENDING and job.not_before == due:
                self._list(job)

    def next_due(self) -> datetime | None:
        """Return the earliest start time of the delayed jobs; None if there are none."""
        return self._delayed[0][0] if self._delayed else None

    def next_freed(self, now: datetime) -> datetime | None:
        """Return when a group's rate limit next lets one of its blocked jobs be claimed; None if no job is blocked."""
        frees = [
            min(at for at in self.claims[job.group] if at > now - job.group_rate.per) + job.group_rate.per
            for job in self.ready()
            if job.group is not None
            and job.group_rate is not None
            and self.recent(job.group, job.group_rate, now) >= max(job.group_rate.count, 1)
        ]
        return min(frees, default=None)

    def take(self) -> Iterator[Job]:
        """Yield ready jobs in claim order, and remove each from the ready jobs; ``keep`` adds a job again."""
        while self._ready:
            _, _, job_id = heappop(self._ready)
            self._listed.discard(job_id)
            job = self.jobs.get(job_id)
            if job and job.status is JobStatus.PENDING:
                yield job

    def ready(self) -> Iterator[Job]:
        """Yield ready jobs in no particular order, without removing them from the queue."""
        for job_id in self._listed:
            job = self.jobs.get(job_id)
            if job and job.status is JobStatus.PENDING:
                yield job

    def running(self, group: str) -> int:
        return sum(job.group == group for job in self.of(JobStatus.CLAIMED))

    def recent(self, group: str, rate: RateLimit, now: datetime) -> int:
        return sum(at > now - rate.per for at in self.claims.get(group, ()))

    def has_room(self, job: Job, running: int, now: datetime, more: int = 1) -> bool:
        """Whether the job's group limit and rate allow ``more`` claims, if ``running`` jobs of the group are claimed now."""
        if job.group is None:
            return True
        if job.group_limit is not None and running + more > job.group_limit:
            return False
        return job.group_rate is None or self.recent(job.group, job.group_rate, now) + more <= job.group_rate.count

    def note_claim(self, group: str, rate: RateLimit, now: datetime) -> None:
        self.claims[group] = [*(at for at in self.claims.get(group, ()) if at > now - rate.per), now]

    def holder(self, key: str) -> Job | None:
        """Return the unfinished job with this unique key; None if there is none."""
        job = self.jobs.get(self.keys.get(key, JobId("")))
        return job if job and job.status in UNFINISHED else None

    def existing(self, new: NewJob) -> JobId | None:
        """Return the id of the job with the new job's id or unique key; None if there is none."""
        if new.job_id is not None and new.job_id in self.jobs:
            return new.job_id
        other = self.holder(new.unique_key) if new.unique_key is not None else None
        return other.job_id if other else None

    def _list(self, job: Job) -> None:
        if job.job_id not in self._listed:
            self._listed.add(job.job_id)
            heappush(self._ready, (-job.priority, self.numbers[job.job_id], job.job_id))
