"""Which jobs an operation changes: one filter for the Python API, the command line, the HTTP API and the dashboard."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import ENDED, Job, JobStatus
from drumbeat.pool.error_text import error_group_id
from drumbeat.pool.validation import check_duration, check_number, check_text, job_statuses


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Selects jobs of a pool: those that match every field that is given. Raises InvalidInput for an invalid field."""

    statuses: tuple[JobStatus, ...] = ()  #: empty: every status that the operation can change
    job_type: str | None = None
    group: str | None = None
    priority: int | None = None
    older_than: timedelta | None = None  #: pushed longer ago than this; for an ended job: ended longer ago
    newer_than: timedelta | None = None  #: pushed within this time; for an ended job: ended within it
    error: str | None = None  #: text within the last error, in upper or lower case
    error_group: str | None = None  #: id of a group of similar errors, as ``Pool.errors`` lists them

    def __post_init__(self) -> None:
        for name, read in _READERS.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, read(name, value))

    @property
    def is_empty(self) -> bool:
        """Whether no field is given, so that every job would match."""
        return all(getattr(self, each.name) in (None, ()) for each in fields(self))

    def with_statuses(self, allowed: Collection[JobStatus], default: Collection[JobStatus], verb: str) -> tuple[JobStatus, ...]:
        """Return the statuses of the jobs to read: those that the filter names, else ``default``. Raises InvalidInput if the
        filter is empty, or names a status that is not ``allowed``; ``verb``: the operation, for the message."""
        if self.is_empty:
            raise InvalidInput(
                f"expected a filter with at least one field, got none; to {verb} all such jobs, give their statuses, "
                f"such as {', '.join(each for each in JobStatus if each in allowed)}"
            )
        if wrong := [status for status in self.statuses if status not in allowed]:
            can = ", ".join(status for status in JobStatus if status in allowed)
            raise InvalidInput(f"statuses: expected only {can}, got {', '.join(wrong)}; other jobs cannot be {verb}")
        return self.statuses or tuple(status for status in JobStatus if status in default)

    def matches(self, job: Job, now: datetime) -> bool:
        """Whether a job matches every field; ages count until ``now``."""
        return (
            (not self.statuses or job.status in self.statuses)
            and self.job_type in (None, job.type)
            and self.group in (None, job.group)
            and self.priority in (None, job.priority)
            and self._has_age(job, now)
            and self._has_error(job)
        )

    def _has_age(self, job: Job, now: datetime) -> bool:
        if self.older_than is None and self.newer_than is None:
            return True
        since = job.finished_at if job.status in ENDED else job.created_at
        if since is None:
            return False
        age = now - since
        return (self.older_than is None or age > self.older_than) and (self.newer_than is None or age <= self.newer_than)

    def _has_error(self, job: Job) -> bool:
        if self.error is not None and self.error.lower() not in (job.last_error or "").lower():
            return False
        return self.error_group is None or (job.last_error is not None and error_group_id(job.last_error) == self.error_group)


def as_filter(given: "JobFilter | Mapping[str, Any]") -> JobFilter:
    """Return ``given`` if it is a JobFilter, else a JobFilter with the fields of this mapping. Raises InvalidInput."""
    if isinstance(given, JobFilter):
        return given
    names = [each.name for each in fields(JobFilter)]
    if not isinstance(given, Mapping) or not set(given) <= set(names):
        raise InvalidInput(f"expected a JobFilter, or an object with fields among {', '.join(names)}; got {str(given)[:80]!r}")
    return JobFilter(**given)


_READERS = {
    "statuses": job_statuses,
    "job_type": check_text,
    "group": check_text,
    "priority": check_number,
    "older_than": check_duration,
    "newer_than": check_duration,
    "error": check_text,
    "error_group": check_text,
}
