"""Runs tasks at once in this process when they are pushed, for tests."""

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any, NoReturn

from drumbeat.core.errors import JobEnded, NotFound
from drumbeat.core.job import Job, JobId, JobStatus, NewJob
from drumbeat.core.pool import PoolId
from drumbeat.pool.payload import as_json
from drumbeat.pool.worker.context import JobContext
from drumbeat.pool.worker.failures import failure
from drumbeat.pool.worker.task_call import TaskFunction


class ImmediateQueue:
    """A queue without a store: each pushed job is run at once, in the caller's thread, and tried again at once if it fails.

    Arguments and results go through JSON as in a real queue. Delays, timeouts, unique keys and limits are ignored.
    """

    def __init__(self, *, raise_errors: bool = False) -> None:
        """With ``raise_errors``, a push raises what the task raises, and the task is not tried again."""
        self.jobs: list[Job] = []  #: the jobs that were pushed, in the order in which they ended
        self._raise_errors = raise_errors
        self._numbers = count(1)

    def push(self, pool: str, task: TaskFunction, jobs: Sequence[NewJob]) -> Sequence[str]:
        return [self._run(task, self._new(pool, each)) for each in jobs]

    async def apush(self, pool: str, task: TaskFunction, jobs: Sequence[NewJob]) -> Sequence[str]:
        return [await self._arun(task, self._new(pool, each)) for each in jobs]

    def job(self, pool: str, job_id: str) -> Job:
        for job in self.jobs:
            if job.job_id == job_id:
                return job
        raise NotFound(f"no job {job_id!r} was pushed in this immediate mode")

    async def ajob(self, pool: str, job_id: str) -> Job:
        return self.job(pool, job_id)

    def result(self, pool: str, job_id: str, timeout: timedelta | float | None) -> object:
        job = self.job(pool, job_id)
        if job.status is not JobStatus.DONE:
            raise JobEnded(f"job {job_id} is {job.status}: {job.last_error}")
        result: object = job.result
        return result

    async def aresult(self, pool: str, job_id: str, timeout: timedelta | float | None) -> object:  # noqa: ASYNC109
        return self.result(pool, job_id, timeout)

    def cancel(self, pool: str, job_id: str) -> None:
        """Do nothing: the job has ended."""

    async def acancel(self, pool: str, job_id: str) -> None:
        """Do nothing: the job has ended."""

    def _new(self, pool: str, new: NewJob) -> Job:
        return Job(
            job_id=JobId(f"immediate-{next(self._numbers)}"),
            pool_id=PoolId(pool),
            payload=_through_json(new.payload),
            type=new.type,
            priority=new.priority,
            max_attempts=new.max_attempts,
        )

    def _run(self, task: TaskFunction, job: Job) -> str:
        while job.status is JobStatus.PENDING:
            job = replace(job, attempts=job.attempts + 1)
            try:
                value = task.run(JobContext(job))
                job = _done(job, _run_in_thread(value) if task.is_async else value)
            except Exception as exc:
                job = self._failed(job, exc)
        self.jobs.append(job)
        return job.job_id

    async def _arun(self, task: TaskFunction, job: Job) -> str:
        while job.status is JobStatus.PENDING:
            job = replace(job, attempts=job.attempts + 1)
            try:
                value = task.run(JobContext(job))
                job = _done(job, await value if task.is_async else value)
            except Exception as exc:
                job = self._failed(job, exc)
        self.jobs.append(job)
        return job.job_id

    def _failed(self, job: Job, exc: Exception) -> Job:
        """Return the job after a failed attempt: pending if it has attempts left, else poisoned."""
        found, failures = failure(exc), job.failures + 1
        ended = found.fatal or failures >= job.max_attempts or self._raise_errors
        status = JobStatus.POISONED if ended else JobStatus.PENDING
        job = replace(job, failures=failures, last_error=found.error, status=status)
        if self._raise_errors:
            self.jobs.append(job)
            raise exc
        return job


def _done(job: Job, value: Any) -> Job:
    return replace(job, status=JobStatus.DONE, result=_through_json(as_json(value, "result")))


def _through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _run_in_thread(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end in a new thread, as the caller's thread may have a running event loop."""
    outcome: list[Callable[[], Any]] = []

    def run() -> None:
        try:
            value = asyncio.run(work)
        except BaseException as exc:
            failed = exc
            outcome.append(lambda: _raise(failed))
        else:
            outcome.append(lambda: value)

    thread = threading.Thread(target=run, name="immediate-task")
    thread.start()
    thread.join()
    return outcome[0]()


def _raise(exc: BaseException) -> NoReturn:
    raise exc
