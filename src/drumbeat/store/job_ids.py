"""Names of jobs that nobody named: short, and sorted as they were pushed."""

import re
from collections.abc import Iterable

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import JobId, NewJob

_OWN = re.compile(r"j[0-9]{12,18}")
_named = "j%012d".__mod__  #: a format string would take twice as long, and every push and claim needs it


def job_id_of(number: int) -> JobId:
    """The id of the ``number``-th job of a store."""
    return JobId(_named(number))


def job_ids_of(numbers: Iterable[int]) -> list[JobId]:
    """The ids of many, at half the price of one by one."""
    return [*map(JobId, map(_named, numbers))]


def number_of(job_id: str) -> int | None:
    """Which job of the store has this id; None where the pusher chose it."""
    return int(job_id[1:]) if _OWN.fullmatch(job_id) else None


def refuse_own_form(job: NewJob) -> None:
    """An id somebody chooses must not look like one that the store will give."""
    if job.job_id is not None and (not job.job_id or number_of(job.job_id) is not None):
        raise InvalidInput(f"expected a job's own id to be unlike the store's (j and twelve digits), got {job.job_id!r}")
