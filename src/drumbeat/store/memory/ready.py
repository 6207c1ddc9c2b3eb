"""The jobs of a pool in memory, with one heap of ready jobs in claim order and one of delayed jobs by due time."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush

from drumbeat.core.job import Attempt, Job, JobId, JobStatus, RateLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """Facts about a claim that its job row does not have."""

    lease: timedelta
    begun: int = 0  #: how many jobs had begun on the worker when it was found lost


@dataclass(slots=True, kw_only=True)
class JobRows:
    """A pool's jobs in the order of pushing, with their attempts, claims and unique keys."""

    jobs: dict[JobId, Job] = field(default_factory=dict)  #: changed only by ``put`` and ``remove``
    by_status: dict[JobStatus, dict[JobId, None]] = field(default_factory=lambda: {status: {} for status in JobStatus})
    numbers: dict[JobId, int] = field(default_factory=dict)
    attempts: dict[JobId, list[Attempt]] = field(default_factory=dict)
    leases: dict[JobId, Leased] = field(default_factory=dict)  #: the last claim of each job
    claims: dict[str, list[datetime]] = field(default_factory=dict)  #: when jobs of a rate-limited group were claimed
    keys: dict[str, JobId] = field(default_factory=dict)  #: the last job with each unique key
    _ready: list[tuple[int, int, JobId]] = field(default_factory=list)
    _delayed: list[tuple[datetime, int, JobId]] = field(default_factory=list)
    _listed: set[JobId] = field(default_factory=set)  #: the jobs in ``_ready``

    def keep(self, job: Job, now: datetime) -> None:
        """Write a job's row and, if it is pending, queue it as ready or delayed."""
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
        """The jobs with this status, unordered."""
        return (self.jobs[job_id] for job_id in self.by_status[status])

    def remove(self, job_id: JobId) -> None:
        del self.by_status[self.jobs[job_id].status][job_id]
        del self.jobs[job_id], self.numbers[job_id]
        self.attempts.pop(job_id, None)
        self.leases.pop(job_id, None)

    def promote(self, now: datetime) -> None:
        """Move delayed jobs that are due to the ready ones."""
        while self._delayed and self._delayed[0][0] <= now:
            due, _, job_id = heappop(self._delayed)
            job = self.jobs.get(job_id)
            if job and job.status is JobStatus.PENDING and job.not_before == due:
                self._list(job)

    def next_due(self) -> datetime | None:
        """When the next delayed job may come due."""
        return self._delayed[0][0] if self._delayed else None

    def next_freed(self, now: datetime) -> datetime | None:
        """When the first ready job that its group's rate limit blocks becomes claimable."""
        frees = [
            min(at for at in self.claims[job.group] if at > now - job.group_rate.per) + job.group_rate.per
            for job in self.ready()
            if job.group is not None
            and job.group_rate is not None
            and self.recent(job.group, job.group_rate, now) >= max(job.group_rate.count, 1)
        ]
        return min(frees, default=None)

    def take(self) -> Iterator[Job]:
        """Ready jobs in claim order; each is removed from the queue until ``keep`` adds it again."""
        while self._ready:
            _, _, job_id = heappop(self._ready)
            self._listed.discard(job_id)
            job = self.jobs.get(job_id)
            if job and job.status is JobStatus.PENDING:
                yield job

    def ready(self) -> Iterator[Job]:
        """Ready jobs, unordered; they stay queued."""
        for job_id in self._listed:
            job = self.jobs.get(job_id)
            if job and job.status is JobStatus.PENDING:
                yield job

    def running(self, group: str) -> int:
        return sum(job.group == group for job in self.of(JobStatus.CLAIMED))

    def recent(self, group: str, rate: RateLimit, now: datetime) -> int:
        return sum(at > now - rate.per for at in self.claims.get(group, ()))

    def has_room(self, job: Job, running: int, now: datetime, more: int = 1) -> bool:
        """Whether the job's group, with ``running`` claimed jobs, may have ``more`` by this job's limit and rate."""
        if job.group is None:
            return True
        if job.group_limit is not None and running + more > job.group_limit:
            return False
        return job.group_rate is None or self.recent(job.group, job.group_rate, now) + more <= job.group_rate.count

    def note_claim(self, group: str, rate: RateLimit, now: datetime) -> None:
        self.claims[group] = [*(at for at in self.claims.get(group, ()) if at > now - rate.per), now]

    def holder(self, key: str) -> Job | None:
        """The unfinished job that has this unique key."""
        job = self.jobs.get(self.keys.get(key, JobId("")))
        return job if job and job.status in (JobStatus.PENDING, JobStatus.CLAIMED) else None

    def _list(self, job: Job) -> None:
        if job.job_id not in self._listed:
            self._listed.add(job.job_id)
            heappush(self._ready, (-job.priority, self.numbers[job.job_id], job.job_id))
