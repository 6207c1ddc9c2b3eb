"""The rows of a memory store, and the checks that its operations share."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from drumbeat.core.answer import StoredAnswer
from drumbeat.core.beat import Beat
from drumbeat.core.clock import Clock
from drumbeat.core.connection import StoredConnection
from drumbeat.core.errors import Fenced, NotFound, WorkerGone
from drumbeat.core.event import Event, NewEvent
from drumbeat.core.job import Job, JobId, JobStatus, Token
from drumbeat.core.lease import Fence, Lease
from drumbeat.core.log import Log
from drumbeat.core.note import Note
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.core.run import Execution, ExecutionFile, Result, Run, RunId, Step, Template
from drumbeat.core.sample import StoredSample
from drumbeat.core.worker import Holder, Worker, WorkerId
from drumbeat.store.memory.faults import Faults
from drumbeat.store.memory.ready import JobRows
from drumbeat.store.memory.subscribers import Subscribers


def plain(value: Any) -> Any:
    """Copy a value by encoding it as JSON and back, so that the caller's later changes do not reach the store."""
    return msgspec.json.decode(msgspec.json.encode(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSample:
    """A stored sample; its latency histogram is encoded as bytes to save memory."""

    row: StoredSample
    latency: bytes


@dataclass(slots=True, kw_only=True)
class PoolRows:
    """A pool and all rows that belong to it; they are deleted with the pool."""

    pool: PoolRow
    run: Run | None = None
    workers: dict[WorkerId, Worker] = field(default_factory=dict)
    live: dict[WorkerId, None] = field(default_factory=dict)
    unreaped: dict[WorkerId, None] = field(default_factory=dict)  #: ended workers with instances that may still run
    ended: dict[WorkerId, None] = field(default_factory=dict)  #: all ended workers, in the order in which they ended
    events: list[Event] = field(default_factory=list)
    beats: list[Beat] = field(default_factory=list)
    samples: dict[tuple[WorkerId, int], CompactSample] = field(default_factory=dict)
    logs: list[Log] = field(default_factory=list)
    results: dict[tuple[str, str], Result] = field(default_factory=dict)
    files: dict[tuple[str, str], ExecutionFile] = field(default_factory=dict)
    steps: dict[tuple[str, int], Step] = field(default_factory=dict)
    executions: dict[tuple[str, int], Execution] = field(default_factory=dict)
    jobs: JobRows = field(default_factory=JobRows)
    last_event: int = 0
    last_beat: int = 0

    def keep_worker(self, worker: Worker) -> None:
        """Save a worker's row; update the lists of live, ended and unreaped (ended but not cleaned up) workers."""
        name = worker.worker_id
        self.workers[name] = worker
        if worker.is_live:
            self.live[name] = None
            return
        self.live.pop(name, None)
        self.ended.setdefault(name)
        if worker.reaped_at is None:
            self.unreaped[name] = None
        else:
            self.unreaped.pop(name, None)

    def drop_worker(self, name: WorkerId) -> None:
        for names in (self.workers, self.live, self.unreaped, self.ended):
            names.pop(name, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLease:
    """A lease and its last owner; stored even after the release, so that the next owner gets a higher epoch."""

    lease: Lease
    released: bool = False


@dataclass(slots=True, kw_only=True)
class MemoryState:
    """All rows of a memory store. Leases are kept when their pool is deleted, so that no epoch is used twice."""

    clock: Clock
    faults: Faults = field(default_factory=Faults)
    pools: dict[PoolId, PoolRows] = field(default_factory=dict)
    leases: dict[str, StoredLease] = field(default_factory=dict)
    templates: dict[str, Template] = field(default_factory=dict)
    connections: dict[str, StoredConnection] = field(default_factory=dict)
    answers: dict[str, StoredAnswer] = field(default_factory=dict)
    notes: dict[str, Note] = field(default_factory=dict)
    job_pools: dict[JobId, PoolId] = field(default_factory=dict)  #: the pool of each job; job ids are unique in the whole store
    parents: dict[JobId, tuple[JobId, ...]] = field(default_factory=dict)  #: of each job that waits or waited for others
    children: dict[JobId, dict[JobId, None]] = field(default_factory=dict)
    subscribers: Subscribers = field(default_factory=Subscribers)
    last_log: int = 0
    last_job: int = 0

    def now(self) -> datetime:
        return self.clock.now()

    def rows(self, pool_id: PoolId) -> PoolRows:
        """Return a pool's rows. Raises NotFound."""
        try:
            return self.pools[pool_id]
        except KeyError:
            raise NotFound(f"there is no pool {pool_id!r}; create it, or see which there are: drumbeat pools list") from None

    def queue_rows(self, pool_id: PoolId) -> PoolRows:
        """Return the rows of a pool of jobs, which is the only kind of pool with a queue. Raises NotFound."""
        rows = self.pools.get(pool_id)
        if rows is None or rows.pool.kind is not PoolKind.JOBS:
            raise NotFound(f"there is no pool of jobs {pool_id!r}; create it, or see which there are: drumbeat pools list")
        return rows

    def run_rows(self, run_id: RunId) -> tuple[PoolRows, Run]:
        """Return the rows of a run's pool, and the run. Raises NotFound."""
        rows = self.pools.get(PoolId(run_id))
        if rows is None or rows.run is None:
            raise NotFound(f"there is no run {run_id!r} in this store; see: drumbeat runs list")
        return rows, rows.run

    def worker(self, pool_id: PoolId, worker_id: WorkerId) -> Worker:
        """Return a worker's row. Raises NotFound."""
        rows = self.pools.get(pool_id)
        if rows is None or worker_id not in rows.workers:
            raise NotFound(f"there is no worker {worker_id!r} in pool {pool_id!r}; see: drumbeat workers list {pool_id}")
        return rows.workers[worker_id]

    def own(self, pool_id: PoolId, worker_id: WorkerId, instance: str) -> Worker:
        """Return the live worker that the process ``instance`` has joined as. Raises WorkerGone for any other process."""
        rows = self.pools.get(pool_id)
        worker = rows.workers.get(worker_id) if rows else None
        if worker is None:
            raise WorkerGone(f"no such worker: {worker_id} in pool {pool_id}; it never joined, or was deleted")
        if worker.instance != instance:
            raise WorkerGone(another_holds(worker))
        if not worker.is_live:
            raise WorkerGone(closed(worker))
        return worker

    def find_job(self, job_id: JobId) -> Job | None:
        rows = self.pools.get(self.job_pools.get(job_id, PoolId("")))
        return rows.jobs.jobs.get(job_id) if rows else None

    def forget_job(self, job_id: JobId) -> None:
        """Forget what is stored about a deleted job outside its pool's rows: its pool's id, and its links to other jobs."""
        self.job_pools.pop(job_id, None)
        self.children.pop(job_id, None)
        for parent in self.parents.pop(job_id, ()):
            self.children.get(parent, {}).pop(job_id, None)

    def held(self, holder: Holder, token: Token) -> Job | None:
        """Return the token's job if this worker process still holds the job by the claim in the token; otherwise None."""
        job = self.find_job(token.job_id)
        if job is None or job.status is not JobStatus.CLAIMED:
            return None
        return job if (job.holder, job.lease_epoch) == (holder, token.epoch) else None

    def admit(self, fence: Fence | None) -> None:
        """Check a controller's fence (lease and epoch). Raises Fenced if the lease was released or another owner took it."""
        if fence is None:
            return
        stored = self.leases.get(fence.name)
        if stored is None:
            raise Fenced(f"expected lease {fence.name} with epoch {fence.epoch}, got no lease; acquire it and try again")
        if stored.released or stored.lease.epoch != fence.epoch:
            how = "was released" if stored.released else f"is held by {stored.lease.owner} under epoch {stored.lease.epoch}"
            raise Fenced(f"expected lease {fence.name} with epoch {fence.epoch}, but it {how}; acquire it and try again")

    def append_events(self, rows: PoolRows, events: Sequence[NewEvent]) -> list[Event]:
        """Number events and append them to the pool's log: all, or none if one payload is not JSON."""
        now = self.now()
        appended = [
            Event(
                pool_id=rows.pool.pool_id,
                sequence_id=number,
                created_at=now,
                type=str(event.type),
                payload=plain(event.payload),
                scope=event.scope,
                worker_id=event.worker_id,
                slot=event.slot,
            )
            for number, event in enumerate(events, start=rows.last_event + 1)
        ]
        rows.events.extend(appended)
        rows.last_event += len(appended)
        return appended


def closed(worker: Worker) -> str:
    """Return the error message for a write by the process of a worker that has ended."""
    because = f" ({worker.error})" if worker.error else ""
    return f"worker {worker.worker_id} of pool {worker.pool_id} has ended as {worker.status}{because}; end this process"


def another_holds(worker: Worker) -> str:
    """Return the error message for a write to this worker's row by a process that has not joined as this worker."""
    if worker.instance is None:
        return f"no process has joined as worker {worker.worker_id} of pool {worker.pool_id}; a worker joins before it writes"
    state = "" if worker.is_live else f", and has ended as {worker.status}"
    return (
        f"worker {worker.worker_id} of pool {worker.pool_id}: another process joined under this id "
        f"({worker.host}, pid {worker.pid}){state}; end this process"
    )


class MemoryTable:
    """Base class of the memory store's groups of operations, which all share one state."""

    def __init__(self, state: MemoryState) -> None:
        self.state = state


_T = TypeVar("_T", bound=MemoryTable)
_P = ParamSpec("_P")
_R = TypeVar("_R")


def operation(step: Callable[Concatenate[_T, _P], _R]) -> Callable[Concatenate[_T, _P], Coroutine[Any, Any, _R]]:
    """Turn a plain function into an async store operation. It never awaits, so no other operation runs in between."""

    @wraps(step)
    async def operate(table: _T, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with table.state.faults.around():
            return step(table, *args, **kwargs)

    return operate
