"""Runs tasks at once in this process when they are pushed, for tests."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any, NoReturn

from drumbeat.core.errors import JobEnded, NotFound
from drumbeat.core.job import Job, JobId, JobStatus, NewJob
from drumbeat.core.pool import PoolId
from drumbeat.pool.flows import WorkflowProgress
from drumbeat.pool.outputs import filled_in, has_outputs
from drumbeat.pool.payload import as_json
from drumbeat.pool.worker.context import JobContext
from drumbeat.pool.worker.failures import failure
from drumbeat.pool.worker.task_call import TaskFunction
from drumbeat.store.flow_rules import ParentCounts, state_after
from drumbeat.store.sql.caller_connection import is_awaited
from drumbeat.tasks.queue import PlannedJob


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

    def push_on(
        self, pool: str, task: TaskFunction, jobs: Sequence[NewJob], connection: Any
    ) -> Sequence[str] | Awaitable[Sequence[str]]:
        """Run the jobs at once, before the caller's transaction ends."""
        return self.apush(pool, task, jobs) if is_awaited(connection) else self.push(pool, task, jobs)

    def job(self, pool: str, job_id: str) -> Job:
        for job in self.jobs:
            if job.job_id == job_id:
                return job
        raise NotFound(f"no job {job_id!r}: drumbeat.testing.immediate knows only the jobs pushed in its own block")

    async def ajob(self, pool: str, job_id: str) -> Job:
        return self.job(pool, job_id)

    def result(self, pool: str, job_id: str, timeout: timedelta | float | None) -> object:
        job = self.job(pool, job_id)
        if job.status is not JobStatus.DONE:
            raise JobEnded(f"job {job_id} is {job.status}: {job.last_error or 'a job that it waits for failed'}")
        result: object = job.result
        return result

    async def aresult(self, pool: str, job_id: str, timeout: timedelta | float | None) -> object:  # noqa: ASYNC109
        return self.result(pool, job_id, timeout)

    def cancel(self, pool: str, job_id: str) -> None:
        """Do nothing: the job has ended."""

    async def acancel(self, pool: str, job_id: str) -> None:
        """Do nothing: the job has ended."""

    def push_workflow(self, jobs: Sequence[PlannedJob]) -> Mapping[str, str]:
        """Run the jobs of a workflow in order (parents come first); a job that was pushed before is not run again."""
        for planned in self._not_pushed(jobs):
            job, parents = self._after_parents(planned)
            if job.status is JobStatus.PENDING:
                self._run(planned.task, job, parents)
            else:
                self.jobs.append(job)
        return {str(each.new.job_id): str(each.new.job_id) for each in jobs}

    async def apush_workflow(self, jobs: Sequence[PlannedJob]) -> Mapping[str, str]:
        for planned in self._not_pushed(jobs):
            job, parents = self._after_parents(planned)
            if job.status is JobStatus.PENDING:
                await self._arun(planned.task, job, parents)
            else:
                self.jobs.append(job)
        return {str(each.new.job_id): str(each.new.job_id) for each in jobs}

    def progress(self, workflow_id: str) -> WorkflowProgress:
        counts = Counter(job.status for job in self.jobs if job.workflow_id == workflow_id)
        return WorkflowProgress(workflow_id=workflow_id, counts=counts)

    async def aprogress(self, workflow_id: str) -> WorkflowProgress:
        return self.progress(workflow_id)

    def cancel_workflow(self, workflow_id: str) -> None:
        """Do nothing: its jobs have ended, or wait for a job that failed."""

    async def acancel_workflow(self, workflow_id: str) -> None:
        """Do nothing: its jobs have ended, or wait for a job that failed."""

    def _not_pushed(self, jobs: Sequence[PlannedJob]) -> Sequence[PlannedJob]:
        known = {job.job_id for job in self.jobs}
        return [planned for planned in jobs if planned.new.job_id not in known]

    def _after_parents(self, planned: PlannedJob) -> tuple[Job, Sequence[Job]]:
        """Return a job, with its parents' results as arguments, and the parents. The job is pending if it can run now."""
        new, job = planned.new, self._new(planned.pool, planned.new)
        if not new.after:
            return job, ()
        parents = [self.job(planned.pool, each) for each in new.after]
        counts = ParentCounts.of([parent.status for parent in parents])
        state = state_after(counts, after_any=new.after_any, if_failed=new.if_failed)
        if has_outputs(job.payload):
            job = replace(job, payload=filled_in(job.payload, {parent.job_id: parent.result for parent in parents}))
        return replace(job, status=state.status, waits_for=state.waits_for, if_failed=new.if_failed), parents

    def _new(self, pool: str, new: NewJob) -> Job:
        return Job(
            job_id=new.job_id or JobId(f"immediate-{next(self._numbers)}"),
            workflow_id=new.workflow_id,
            pool_id=PoolId(pool),
            payload=_through_json(new.payload),
            type=new.type,
            priority=new.priority,
            max_attempts=new.max_attempts,
        )

    def _run(self, task: TaskFunction, job: Job, parents: Sequence[Job] = ()) -> str:
        while job.status is JobStatus.PENDING:
            job = replace(job, attempts=job.attempts + 1)
            try:
                value = task.run(_context(job, parents))
                job = _done(job, _run_in_thread(value) if task.is_async else value)
            except (Exception, SystemExit, asyncio.CancelledError) as exc:
                job = self._failed(job, exc)
        self.jobs.append(job)
        return job.job_id

    async def _arun(self, task: TaskFunction, job: Job, parents: Sequence[Job] = ()) -> str:
        while job.status is JobStatus.PENDING:
            job = replace(job, attempts=job.attempts + 1)
            try:
                value = task.run(_context(job, parents))
                job = _done(job, await value if task.is_async else value)
            except (Exception, SystemExit, asyncio.CancelledError) as exc:
                if isinstance(exc, asyncio.CancelledError) and _is_cancelled():
                    raise
                job = self._failed(job, exc)
        self.jobs.append(job)
        return job.job_id

    def _failed(self, job: Job, exc: BaseException) -> Job:
        """Return the job after a failed attempt: pending if it has attempts left, else poisoned."""
        found, failures = failure(_as_in_worker(exc)), job.failures + 1
        ended = found.fatal or failures >= job.max_attempts or self._raise_errors
        status = JobStatus.POISONED if ended else JobStatus.PENDING
        job = replace(job, failures=failures, last_error=found.error, status=status)
        if self._raise_errors:
            self.jobs.append(job)
            raise exc
        return job


def _context(job: Job, parents: Sequence[Job]) -> JobContext:
    context = JobContext(job)
    context.ask_parents_by(lambda: parents)
    return context


def _as_in_worker(exc: BaseException) -> BaseException:
    return RuntimeError(f"the handler raised SystemExit: {exc}") if isinstance(exc, SystemExit) else exc


def _is_cancelled() -> bool:
    """Whether the test itself is being cancelled, and not just the task."""
    test = asyncio.current_task()
    return test is not None and test.cancelling() > 0


def _done(job: Job, value: Any) -> Job:
    return replace(job, status=JobStatus.DONE, result=_through_json(as_json(value, "result")))


def _through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _run_in_thread(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end in a new thread, as the caller's thread may have a running event loop."""
    outcome: list[Callable[[], Any]] = []

    async def keep_outcome() -> None:  # within the event loop, whose frames are then not part of the error's traceback
        try:
            value = await work
        except BaseException as exc:
            failed = exc
            outcome.append(lambda: _raise(failed))
        else:
            outcome.append(lambda: value)

    def run() -> None:
        asyncio.run(keep_outcome())

    thread = threading.Thread(target=run, name="immediate-task")
    thread.start()
    thread.join()
    return outcome[0]()


def _raise(exc: BaseException) -> NoReturn:
    raise exc
