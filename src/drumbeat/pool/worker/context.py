"""What a handler gets with a job: the job, its deadline, and how to report progress and failures."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import Job, JobId
from drumbeat.pool.payload import MOST_BYTES

Tell = Callable[[float, str | None], None]
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class JobFailure(Exception):
    """Raise this in a handler to fail the job. If ``fatal``, the job is not retried; otherwise it is retried after
    ``retry_in``, or after the job's backoff if ``retry_in`` is None.

    ``retry_in`` is a timedelta or a number of seconds; less than 0 counts as 0, more than ten years as ten years.
    """

    fatal: bool = False
    retry_in: timedelta | float | None = None

    def __init__(self, message: str, *, fatal: bool = False, retry_in: timedelta | float | None = None) -> None:
        super().__init__(message)
        self.fatal = fatal
        self.retry_in = retry_in


class JobContext:
    """What a handler can know about the job it runs, and how it reports progress. Safe to use from any thread."""

    def __init__(self, job: Job, deadline: datetime | None = None, tell: Tell | None = None) -> None:
        self.job = job
        self.deadline = deadline  #: when the attempt times out; None: never
        self.cancelled = False  #: True: the job must stop; a handler in a thread should check this and return
        self.headers: Mapping[str, str] = _NO_HEADERS  #: text that middleware has added to the job when it was pushed
        self.exception: BaseException | None = None  #: what the handler raised
        self.most_bytes = MOST_BYTES  #: the largest result that can be stored, in bytes of JSON
        self._tell = tell

    @property
    def job_id(self) -> JobId:
        return self.job.job_id

    @property
    def type(self) -> str:
        return self.job.type

    @property
    def attempt(self) -> int:
        """The number of this attempt at the job, counted from 1."""
        return self.job.attempts

    @property
    def payload(self) -> Any:
        return self.job.payload

    def progress(self, share: float, note: object = None) -> None:
        """Report progress from 0 to 1, with a note. The latest is stored, at most twice a second. Raises InvalidInput."""
        if not 0 <= share <= 1:
            raise InvalidInput(f"expected progress between 0 and 1, got {share!r}")
        if self._tell is not None:
            self._tell(float(share), None if note is None else str(note))
