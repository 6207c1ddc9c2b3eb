"""Where tasks are pushed: the queue in a store, through one connection per process and store."""

import logging
import os
import threading
import weakref
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from drumbeat.core.errors import NotFound
from drumbeat.core.job import Job, JobId, NewJob
from drumbeat.loop_thread import LoopThread, refuse_in_loop
from drumbeat.pool.flows import WorkflowProgress
from drumbeat.pool.service import Pool
from drumbeat.pool.worker.log_context import CURRENT_JOB
from drumbeat.pool.worker.task_call import TaskFunction
from drumbeat.settings import STORE_VARIABLE

if TYPE_CHECKING:
    from drumbeat.client import Connection

log = logging.getLogger(__name__)

DEFAULT_POOL = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job of a workflow as it is pushed, with its pool and its task."""

    pool: str
    task: TaskFunction
    new: NewJob


class TaskQueue(Protocol):
    """What a task needs of a queue: push jobs and read their state. Methods whose names begin with ``a`` are for coroutines."""

    def push(self, pool: str, task: TaskFunction, jobs: Sequence[NewJob]) -> Sequence[str]: ...
    async def apush(self, pool: str, task: TaskFunction, jobs: Sequence[NewJob]) -> Sequence[str]: ...
    def push_on(
        self, pool: str, task: TaskFunction, jobs: Sequence[NewJob], connection: Any
    ) -> Sequence[str] | Awaitable[Sequence[str]]: ...
    def job(self, pool: str, job_id: str) -> Job: ...
    async def ajob(self, pool: str, job_id: str) -> Job: ...
    def result(self, pool: str, job_id: str, timeout: timedelta | float | None) -> object: ...
    async def aresult(self, pool: str, job_id: str, timeout: timedelta | float | None) -> object: ...  # noqa: ASYNC109
    def cancel(self, pool: str, job_id: str) -> None: ...
    async def acancel(self, pool: str, job_id: str) -> None: ...
    def push_workflow(self, jobs: Sequence[PlannedJob]) -> Mapping[str, str]: ...
    async def apush_workflow(self, jobs: Sequence[PlannedJob]) -> Mapping[str, str]: ...
    def progress(self, workflow_id: str) -> WorkflowProgress: ...
    async def aprogress(self, workflow_id: str) -> WorkflowProgress: ...
    def cancel_workflow(self, workflow_id: str) -> None: ...
    async def acancel_workflow(self, workflow_id: str) -> None: ...


#: in a handler that a test pool runs: the queue for the tasks that it pushes
QUEUE_OF_HANDLER: ContextVar[TaskQueue | None] = ContextVar("drumbeat_task_queue", default=None)


class StoreQueue:
    """The queue of one store for all tasks of this process. Its connection runs on a thread of its own, unless ``loop`` is
    given, which has the methods of a LoopThread."""

    def __init__(self, connection: Any, loop: Any = None) -> None:
        self.connection: Connection = connection
        self.loop: LoopThread = loop or LoopThread()
        connection.loop = self.loop
        self._pools: dict[str, Pool] = {}
        self._recorded = defaultdict[str, dict[str, str | None]](dict)  #: by pool and type: the handler recorded in the pool

    def push(self, pool: str, task: TaskFunction, jobs: Sequence[NewJob]) -> Sequence[str]:
        return self.loop.run(self._push(pool, task, jobs))

    async def apush(self, pool: str, task: TaskFunction, jobs: Sequence[NewJob]) -> Sequence[str]:
        return await self.loop.run_async(self._push(pool, task, jobs))

    def push_on(
        self, pool: str, task: TaskFunction, jobs: Sequence[NewJob], connection: Any
    ) -> Sequence[str] | Awaitable[Sequence[str]]:
        """Push jobs in the caller's open transaction; the result must be awaited if the connection is asynchronous.

        Writes nothing on any other connection: in SQLite, that write would wait for the caller's commit, which waits for it.
        """
        return self.pool(pool).push_jobs_on(connection, jobs)

    def job(self, pool: str, job_id: str) -> Job:
        return self.loop.run(self.pool(pool).job(job_id))

    async def ajob(self, pool: str, job_id: str) -> Job:
        return await self.loop.run_async(self.pool(pool).job(job_id))

    def result(self, pool: str, job_id: str, timeout: timedelta | float | None) -> object:
        refuse_in_loop("result()", "await job.aresult(…)")
        return self.loop.run(self._result(pool, job_id, timeout))

    async def aresult(self, pool: str, job_id: str, timeout: timedelta | float | None) -> object:  # noqa: ASYNC109
        return await self.loop.run_async(self._result(pool, job_id, timeout))

    def cancel(self, pool: str, job_id: str) -> None:
        self.loop.run(self._cancel(pool, job_id))

    async def acancel(self, pool: str, job_id: str) -> None:
        await self.loop.run_async(self._cancel(pool, job_id))

    def push_workflow(self, jobs: Sequence[PlannedJob]) -> Mapping[str, str]:
        """Push the jobs of a workflow, given parents first. Returns each job's id in the store, by the id that it was given."""
        return self.loop.run(self._push_workflow(jobs))

    async def apush_workflow(self, jobs: Sequence[PlannedJob]) -> Mapping[str, str]:
        return await self.loop.run_async(self._push_workflow(jobs))

    def progress(self, workflow_id: str) -> WorkflowProgress:
        return self.loop.run(self._workflows().workflow(workflow_id))

    async def aprogress(self, workflow_id: str) -> WorkflowProgress:
        return await self.loop.run_async(self._workflows().workflow(workflow_id))

    def cancel_workflow(self, workflow_id: str) -> None:
        self.loop.run(self._workflows().cancel_workflow(workflow_id))

    async def acancel_workflow(self, workflow_id: str) -> None:
        await self.loop.run_async(self._workflows().cancel_workflow(workflow_id))

    def _workflows(self) -> Pool:
        """Return the pool to call workflow methods on. Any pool would do, because these methods reach the jobs of all pools."""
        return self.pool(DEFAULT_POOL)

    def pool(self, name: str) -> Pool:
        if name not in self._pools:
            pool = self.connection.pool(name)
            pool.create_missing = partial(self._create_missing, pool)
            self._pools[name] = pool
        return self._pools[name]

    def close(self) -> None:
        """Close the connection and end its thread. Safe to call more than once."""
        if self.loop.is_running:
            try:
                self.loop.close(self.connection.close)
            except Exception as exc:
                log.warning("failed to close the store of the tasks: %s", str(exc) or type(exc).__name__)

    async def _push(self, pool: str, task: TaskFunction, jobs: Sequence[NewJob]) -> Sequence[str]:
        target = self.pool(pool)
        if task.task_name not in self._recorded[pool]:
            await self._record(pool, [task])
        return await target.push_jobs(jobs)

    async def _record(self, pool: str, tasks: Iterable[TaskFunction]) -> None:
        """Record in a pool which function runs which type of job, unless that was done before."""
        recorded = self._recorded[pool]
        new = {task.task_name: task.handler_name for task in tasks if task.task_name not in recorded}
        if new:
            handlers = _importable(new)
            await self.connection.record_handlers(pool, handlers)
            recorded |= new

    async def _create_missing(self, pool: Pool) -> None:
        """Create a pool that was deleted since the first push to it, with the handlers of all tasks pushed to it before."""
        try:
            await pool.get()
        except NotFound:
            await self.connection.record_handlers(pool.pool_id, _importable(self._recorded[pool.pool_id]))

    async def _push_workflow(self, jobs: Sequence[PlannedJob]) -> Mapping[str, str]:
        ids: dict[str, str] = {}
        for pool, batch in pool_batches(jobs):
            await self._record(pool, [job.task for job in batch])
            try:
                found = await self.pool(pool).push_jobs([_renamed(job.new, ids) for job in batch])
            except Exception as exc:
                if ids:
                    exc.add_note(f"{len(ids)} of {len(jobs)} jobs were pushed; push the workflow again to add the rest")
                raise
            ids |= {str(job.new.job_id): job_id for job, job_id in zip(batch, found, strict=True)}
        return ids

    async def _result(self, pool: str, job_id: str, timeout: timedelta | float | None) -> object:  # noqa: ASYNC109
        result: object = await self.pool(pool).result(job_id, timeout)
        return result

    async def _cancel(self, pool: str, job_id: str) -> None:
        await self.pool(pool).cancel(job_id)


def pool_batches(jobs: Sequence[PlannedJob]) -> Iterator[tuple[str, Sequence[PlannedJob]]]:
    """Split jobs (parents come first) into few batches of one pool each; parents are in the same or an earlier batch."""
    left = [*jobs]
    while left:
        pool, batch, rest = left[0].pool, list[PlannedJob](), list[PlannedJob]()
        missing = {job.new.job_id for job in left}
        for job in left:
            if job.pool == pool and missing.isdisjoint(job.new.after):
                batch.append(job)
                missing.discard(job.new.job_id)
            else:
                rest.append(job)
        yield pool, batch
        left = rest


def _importable(handlers: Mapping[str, str | None]) -> dict[str, str]:
    """Return the handlers that workers of other processes can import."""
    return {kind: handler for kind, handler in handlers.items() if handler is not None}


def _renamed(new: NewJob, ids: Mapping[str, str]) -> NewJob:
    """Return a job with the ids that its parents have in the store: for a unique parent, an existing job may be used."""
    after = tuple(JobId(ids.get(parent, parent)) for parent in new.after)
    return new if after == new.after else replace(new, after=after)


class SharedQueues:
    """The queues of this process, one for each store. A forked process opens its own instead of using its parent's."""

    def __init__(self) -> None:
        self.replacement: TaskQueue | None = None  #: used instead of any store, such as in tests
        self._inherited: list[object] = []  #: connections of the parent process: not used and not closed here
        self._begin()
        os.register_at_fork(after_in_child=self._forget)

    def find(self, url: str | None) -> TaskQueue:
        """Return the queue for tasks: ``replacement`` if it is set; in a handler that a test pool runs, the queue of the test
        pool's store; otherwise the queue of the store at ``url``. ``url`` is by default the store of the handler's job and,
        outside of handlers, that of DRUMBEAT_STORE or the settings file."""
        return self.replacement or QUEUE_OF_HANDLER.get() or self.find_store(url)

    def find_store(self, url: str | None) -> StoreQueue:
        """Return the queue of a store, like ``find``, but never that of a test."""
        url = url or _store_of_job()
        key = url or os.environ.get(STORE_VARIABLE) or f"settings of {os.getcwd()}"
        found = self._queues.get(key)
        if found is None:
            with self._lock:
                found = self._queues.get(key) or _open(url)
                self._queues[key] = found
        return found

    def close(self) -> None:
        """Close all connections; the next push opens them again."""
        with self._lock:
            _close_all(os.getpid(), self._queues)

    def _begin(self) -> None:
        self._queues: dict[str, StoreQueue] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, _close_all, os.getpid(), self._queues)  # also called when the process exits

    def _forget(self) -> None:
        self._inherited.append(self._queues)
        self._begin()


def _store_of_job() -> str | None:
    """Return the URL of the store of the job whose handler calls this; None outside a handler, and for a store in memory, to
    which no other connection can be opened."""
    context = CURRENT_JOB.get()
    url = None if context is None else context.store_url
    return None if url is None or url.startswith("memory:") else url


def _open(url: str | None) -> StoreQueue:
    from drumbeat.client import connect
    from drumbeat.composition.base import triggers_file

    return StoreQueue(connect(url, triggers=triggers_file() is not None))


def _close_all(process_id: int, queues: dict[str, StoreQueue]) -> None:
    """Close queues, unless another process opened them (the parent from which this process was forked)."""
    while queues and os.getpid() == process_id:
        queues.popitem()[1].close()


queues = SharedQueues()
