"""Groups the poisoned jobs of a pool by their error, so that a few causes show among many failed jobs."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from drumbeat.core.job import Job, JobId, JobStatus
from drumbeat.core.pool import PoolId
from drumbeat.pool.bulk import matching_pages
from drumbeat.pool.error_text import error_group_id, normalised_error
from drumbeat.pool.job_filter import JobFilter
from drumbeat.store.interface import Store

MOST_GROUPS = 1000  #: groups that are kept apart; jobs of further groups are only counted
_MOST_TYPES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroup:
    """Poisoned jobs whose errors are equal except for numbers, ids and addresses."""

    group_id: str  #: selects these jobs in a filter (``error_group``)
    error: str  #: the error with placeholders such as <n> instead of numbers
    jobs: int
    types: tuple[str, ...]  #: the types of these jobs, most frequent first
    first_seen: datetime | None  #: when the first of these jobs was poisoned
    last_seen: datetime | None
    example: JobId  #: the job that was poisoned last


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorGroups:
    """The error groups of a pool, largest first."""

    groups: tuple[ErrorGroup, ...]
    jobs: int  #: poisoned jobs in all groups
    ungrouped: int = 0  #: poisoned jobs of rarer groups that are not listed, because there are too many different errors


class _Tally:
    """Counts the jobs of one group while they are read."""

    def __init__(self, first: Job) -> None:
        self.error = normalised_error(first.last_error)
        self.jobs = 0
        self.types = Counter[str]()
        self.first_seen, self.last_seen, self.example = first.finished_at, first.finished_at, first.job_id

    def add(self, job: Job) -> None:
        self.jobs += 1
        if job.type in self.types or len(self.types) < _MOST_TYPES:
            self.types[job.type] += 1
        at = job.finished_at
        if at is not None and (self.first_seen is None or at < self.first_seen):
            self.first_seen = at
        if at is not None and (self.last_seen is None or at >= self.last_seen):
            self.last_seen, self.example = at, job.job_id

    def group(self, group_id: str) -> ErrorGroup:
        return ErrorGroup(
            group_id=group_id,
            error=self.error,
            jobs=self.jobs,
            types=tuple(kind for kind, _ in self.types.most_common()),
            first_seen=self.first_seen,
            last_seen=self.last_seen,
            example=self.example,
        )


async def read_error_groups(store: Store, pool_id: PoolId, selected: JobFilter) -> ErrorGroups:
    """Read the poisoned jobs that match the filter, some hundred at a time, and group them by their error."""
    tallies: dict[str, _Tally] = {}
    ungrouped = 0
    async for jobs in matching_pages(store, pool_id, selected, (JobStatus.POISONED,)):
        for job in jobs:
            group_id = error_group_id(job.last_error)
            if group_id not in tallies and len(tallies) >= MOST_GROUPS:
                ungrouped += 1
            else:
                tallies.setdefault(group_id, _Tally(job)).add(job)
    groups = sorted((tally.group(group_id) for group_id, tally in tallies.items()), key=lambda each: (-each.jobs, each.error))
    return ErrorGroups(groups=tuple(groups), jobs=sum(each.jobs for each in groups) + ungrouped, ungrouped=ungrouped)
