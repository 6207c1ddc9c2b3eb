"""What pushing a task or a workflow returns: ids, status, progress and results."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar, cast

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import Job, JobStatus
from drumbeat.pool.flows import WorkflowProgress
from drumbeat.pool.worker.task_call import TaskFunction
from drumbeat.tasks.queue import TaskQueue

R = TypeVar("R")


class PushedJob(Generic[R]):
    """A job that a task has pushed. The methods whose names begin with ``a`` are for coroutines."""

    def __init__(self, job_id: str, pool: str, task: TaskFunction, queue: TaskQueue, workflow_id: str | None = None) -> None:
        self.job_id = job_id
        self.pool = pool
        self.workflow_id = workflow_id  #: None: it was not pushed as part of a workflow
        self._task = task
        self._queue = queue

    def __repr__(self) -> str:
        return f"PushedJob({self.job_id!r}, task={self._task.task_name!r}, pool={self.pool!r})"

    def result(self, timeout: timedelta | float | None = None) -> R:
        """Wait until the job is done, and return what its function returned. Within an event loop, use ``aresult``.

        Raises TimeoutError; JobEnded if the job was poisoned or cancelled; InvalidInput within an event loop.
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
        try:
            return cast(R, result if convert is None else convert(result))
        except InvalidInput as exc:
            raise InvalidInput(f"task {self._task.task_name}, job {self.job_id}: {exc}") from exc


class PushedWorkflow:
    """A workflow of tasks that was pushed. The methods whose names begin with ``a`` are for coroutines."""

    def __init__(
        self, workflow_id: str, jobs: Sequence[PushedJob[Any]], last: Sequence[PushedJob[Any]], queue: TaskQueue
    ) -> None:
        self.workflow_id = workflow_id
        self.jobs = jobs  #: all its jobs; first those that others wait for
        self.last = last  #: the jobs of its last stage
        self._queue = queue

    def __repr__(self) -> str:
        return f"PushedWorkflow({self.workflow_id!r}, jobs={len(self.jobs)})"

    def result(self, timeout: timedelta | float | None = None) -> Any:
        """Wait until the last job is done, and return its result; if the last stage has several jobs, a list of their results.

        Raises TimeoutError if one of these jobs takes longer; JobEnded if it was poisoned or cancelled; InvalidInput within an
        event loop: use ``aresult`` there.
        """
        results = [job.result(timeout) for job in self.last]
        return results[0] if len(results) == 1 else results

    async def aresult(self, timeout: timedelta | float | None = None) -> Any:  # noqa: ASYNC109
        """Like ``result``, for coroutines."""
        results = [await job.aresult(timeout) for job in self.last]
        return results[0] if len(results) == 1 else results

    def progress(self) -> WorkflowProgress:
        """Count the jobs of the workflow by state, with those that were added to it later."""
        return self._queue.progress(self.workflow_id)

    async def aprogress(self) -> WorkflowProgress:
        """Like ``progress``, for coroutines."""
        return await self._queue.aprogress(self.workflow_id)

    def cancel(self) -> None:
        """Cancel all unfinished jobs of the workflow: at once if they wait, within about a second if they run."""
        self._queue.cancel_workflow(self.workflow_id)

    async def acancel(self) -> None:
        """Like ``cancel``, for coroutines."""
        await self._queue.acancel_workflow(self.workflow_id)
