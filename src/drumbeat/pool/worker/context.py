"""What a handler gets with a job: the job, its deadline, and how to report progress and failures."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import Job, JobId

Tell = Callable[[float, str | None], None]
ReadParents = Callable[[JobId], Coroutine[Any, Any, Sequence[Job]]]


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
        self._tell = tell
        self._read_parents: tuple[ReadParents, asyncio.AbstractEventLoop] | None = None

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

    async def parents(self) -> Sequence[Job]:
        """Return the jobs that this job waited for, in the order of pushing, with their results. Raises InvalidInput in a
        handler that runs in a child process."""
        if self.job.if_failed is None:
            return ()
        read, loop = self._parent_reader()
        if asyncio.get_running_loop() is loop:
            return await read(self.job_id)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(read(self.job_id), loop))

    def parents_blocking(self) -> Sequence[Job]:
        """Like ``parents``, for a handler that is a plain function: it runs in a thread, which waits for the answer."""
        if self.job.if_failed is None:
            return ()
        read, loop = self._parent_reader()
        return asyncio.run_coroutine_threadsafe(read(self.job_id), loop).result()

    def read_parents_by(self, read: ReadParents, loop: asyncio.AbstractEventLoop) -> None:
        """Set the coroutine function that reads a job's parents, and the event loop on which it must run."""
        self._read_parents = (read, loop)

    def _parent_reader(self) -> tuple[ReadParents, asyncio.AbstractEventLoop]:
        if self._read_parents is None:
            raise InvalidInput("a handler in a child process cannot read parents; use the executor async or threads")
        return self._read_parents

    def progress(self, share: float, note: object = None) -> None:
        """Report progress from 0 to 1, with a note. The latest is stored, at most twice a second. Raises InvalidInput."""
        if not 0 <= share <= 1:
            raise InvalidInput(f"expected progress between 0 and 1, got {share!r}")
        if self._tell is not None:
            self._tell(float(share), None if note is None else str(note))
