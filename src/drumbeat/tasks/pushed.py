"""What pushing a task returns: the job's id, its status and its result."""

from datetime import timedelta
from typing import Any, Generic, TypeVar, cast

from drumbeat.core.job import Job, JobStatus
from drumbeat.pool.worker.task_call import TaskFunction
from drumbeat.tasks.queue import TaskQueue

R = TypeVar("R")


class PushedJob(Generic[R]):
    """A job that a task has pushed. The methods whose names begin with ``a`` are for coroutines."""

    def __init__(self, job_id: str, pool: str, task: TaskFunction, queue: TaskQueue) -> None:
        self.job_id = job_id
        self.pool = pool
        self._task = task
        self._queue = queue

    def __repr__(self) -> str:
        return f"PushedJob({self.job_id!r}, task={self._task.task_name!r}, pool={self.pool!r})"

    def result(self, timeout: timedelta | float | None = None) -> R:
        """Wait until the job is done, and return what its function returned.

        Raises TimeoutError; JobEnded if the job was poisoned or cancelled.
        """
        return self._typed(self._queue.result(self.pool, self.job_id, timeout))

    async def aresult(self, timeout: timedelta | float | None = None) -> R:  # noqa: ASYNC109
        """Like ``result``, for coroutines."""
        return self._typed(await self._queue.aresult(self.pool, self.job_id, timeout))

    def status(self) -> JobStatus:
        return self._queue.job(self.pool, self.job_id).status

    async def astatus(self) -> JobStatus:
        return (await self._queue.ajob(self.pool, self.job_id)).status

    def job(self) -> Job:
        """Read the whole job: attempts, errors, progress and times."""
        return self._queue.job(self.pool, self.job_id)

    async def ajob(self) -> Job:
        """Like ``job``, for coroutines."""
        return await self._queue.ajob(self.pool, self.job_id)

    def cancel(self) -> None:
        """Cancel the job: at once if it waits, within about a second if it runs."""
        self._queue.cancel(self.pool, self.job_id)

    async def acancel(self) -> None:
        """Like ``cancel``, for coroutines."""
        await self._queue.acancel(self.pool, self.job_id)

    def _typed(self, result: Any) -> R:
        convert = self._task.result_converter
        return cast(R, result if convert is None else convert(result))
