"""Store interfaces for pools, workers, the events that workers obey, and the leases that let one controller act at a time."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from drumbeat.core.errors import StaleWrite
from drumbeat.core.event import Event, NewEvent, WorkerTarget
from drumbeat.core.lease import Fence, Lease
from drumbeat.core.pool import PoolId, PoolKind, PoolRow, Thresholds
from drumbeat.core.run import RunStatus
from drumbeat.core.sample import Sample
from drumbeat.core.worker import Holder, Worker, WorkerId, WorkerStatus

BATCH = 100  #: the most events that one read returns
UNREAPED = 1000  #: one read returns at most this many ended workers with an instance that may still exist


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChange:
    """The fields of a pool to change. Other fields are not written, so that concurrent changes of them are kept."""

    policy: Mapping[str, Any] = field(default_factory=dict)  #: merged into the pool's policy
    dropped: Collection[str] = ()  #: keys to remove from the policy, unless ``policy`` sets them
    thresholds: Thresholds | None = None
    paused_until: datetime | None = None
    resumed: bool = False  #: end the pause
    expected: Mapping[str, Any] = field(
        default_factory=dict
    )  #: values that the policy must still have; None: it has no such key

    def policy_of(self, pool_id: PoolId, policy: Mapping[str, Any]) -> dict[str, Any]:
        """Return a pool's policy with this change applied. Raises StaleWrite if the policy differs from ``expected``."""
        for name, value in self.expected.items():
            if policy.get(name) != value:
                raise StaleWrite(f"the setting {name!r} of pool {pool_id!r} was changed meanwhile; read the pool again")
        return {**{name: value for name, value in policy.items() if name not in self.dropped}, **self.policy}

    def of(self, pool: PoolRow) -> PoolRow:
        """Return the pool with this change applied. Raises StaleWrite if its policy differs from ``expected``."""
        return replace(
            pool,
            policy=self.policy_of(pool.pool_id, pool.policy),
            thresholds=self.thresholds or pool.thresholds,
            paused_until=None if self.resumed else self.paused_until or pool.paused_until,
        )


class Pools(Protocol):
    """Pools: named sets of workers. A pool has thresholds and a policy, and can be paused."""

    async def create(self, pool: PoolRow) -> PoolRow:
        """Create a pool; its events are numbered from 1. Raises AlreadyExists."""
        ...

    async def get(self, pool_id: PoolId) -> PoolRow:
        """Return the pool with this id. Raises NotFound."""
        ...

    async def find(self, pool_id: PoolId) -> PoolRow | None: ...

    async def list(self, kind: PoolKind | None = None) -> Sequence[PoolRow]:
        """Return all pools, or those of one kind, oldest first."""
        ...

    async def change(self, pool_id: PoolId, change: PoolChange, *, fence: Fence | None = None) -> PoolRow:
        """Change only the fields in ``change``, so that concurrent changes of other fields are kept. Raises NotFound. Raises
        StaleWrite, and changes nothing, if the policy is not as ``change.expected`` requires."""
        ...

    async def delete(self, pool_id: PoolId, *, unfinished: bool = True) -> None:
        """Delete a pool and everything that belongs to it. Does nothing if the pool does not exist.

        Raises Refused while the pool has live workers, while it has unfinished jobs and ``unfinished`` is False, and while an
        unfinished job of another pool depends on a job of this pool. A job that is pushed at the same time keeps the pool (if
        ``unfinished`` is False), or is deleted with it, or its push raises NotFound; it is never left without a pool.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerChange:
    """Fields to change when a worker moves to another status; a field that is None stays as it is."""

    exit_code: int | None = None
    error: str | None = None
    provider_ref: str | None = None
    meta: Mapping[str, Any] | None = None  #: merged into the row's ``meta``


class Workers(Protocol):
    """The worker registry as controllers use it. Each status change of a worker appends an event in the same transaction."""

    async def add(self, workers: Sequence[Worker], *, fence: Fence | None = None) -> None:
        """Add rows for workers before their processes exist; all or none. Raises AlreadyExists, NotFound (no such pool)."""
        ...

    async def get(self, pool_id: PoolId, worker_id: WorkerId) -> Worker:
        """Return one worker of a pool. Raises NotFound."""
        ...

    async def list(self, pool_id: PoolId, *, live: bool = False, gone_since: datetime | None = None) -> Sequence[Worker]:
        """Return a pool's workers, sorted by slot, then age; with ``live`` only live workers. ``gone_since`` leaves out workers
        with an instance that was confirmed gone before that time: a long-lived pool has many of them."""
        ...

    async def list_unreaped(self, pool_id: PoolId, *, named: Collection[WorkerId] = ()) -> Sequence[Worker]:
        """Return the live workers, the workers in ``named``, and up to UNREAPED ended workers with an instance that is not yet
        confirmed gone; sorted by slot, then age. The cost does not grow with the number of other ended workers."""
        ...

    async def list_ended(self, pool_id: PoolId, limit: int) -> Sequence[Worker]:
        """Return the workers that ended last, newest first. The cost does not grow with the number of ended workers."""
        ...

    async def move(
        self,
        worker: Worker,
        to: WorkerStatus,
        reason: str,
        change: WorkerChange | None = None,
        *,
        fence: Fence | None = None,
    ) -> Worker:
        """Move a worker to another status, if its status and heartbeat count are still those of ``worker``.

        Raises IllegalMove if the state machine has no such transition, StaleWrite if the worker has moved or sent a heartbeat.
        """
        ...

    async def set_targets(
        self, pool_id: PoolId, targets: Mapping[WorkerId, WorkerTarget], *, fence: Fence | None = None
    ) -> Sequence[Event]:
        """Set the target (connections or jobs) of each worker, and append an event for each.

        Raises NotFound if one of the workers is not live.
        """
        ...

    async def ask_to_drain(
        self,
        pool_id: PoolId,
        workers: Sequence[WorkerId],
        reason: str,
        within: timedelta,
        *,
        fence: Fence | None = None,
    ) -> Sequence[WorkerId]:
        """Ask live workers to drain: each gets a drain deadline and a STOP event, and no more jobs. Harmless to repeat.

        Returns the workers that were not asked before. Wakes workers that wait for jobs, so that they notice it at once.
        """
        ...

    async def note_instance(
        self, pool_id: PoolId, worker_id: WorkerId, ref: str, meta: Mapping[str, Any], *, fence: Fence | None = None
    ) -> None:
        """Record a worker's instance id at the provider (``ref``) and merge ``meta`` (price, region) into the row's ``meta``.
        Raises NotFound."""
        ...

    async def mark_reaped(self, pool_id: PoolId, worker_id: WorkerId, *, fence: Fence | None = None) -> None:
        """Record that the instance of an ended worker is gone. Raises NotFound, or StaleWrite if the worker is still live."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """The identity of a process that joins as a worker."""

    pool_id: PoolId
    worker_id: WorkerId
    slot: int
    instance: str  #: unique to this process; from now on only this process may write the row
    host: str
    pid: int
    provider: str | None = None
    provider_ref: str | None = None
    capabilities: tuple[str, ...] = ()

    @property
    def holder(self) -> Holder:
        """The pool, worker id and process that identify this worker as the holder of jobs."""
        return Holder(pool_id=self.pool_id, worker_id=self.worker_id, instance=self.instance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A worker's heartbeat, with its measurements and the last event that it has read."""

    pool_id: PoolId
    worker_id: WorkerId
    instance: str
    read_to: int  #: number of the last event that the worker has obeyed
    phase: str | None = None
    applied_target: int = 0
    active: int = 0
    operations: int = 0
    errors: int = 0
    error: str | None = None
    cpu_percent: float | None = None
    memory_percent: float | None = None
    gpu: Mapping[str, Any] | None = None
    sample: Sample | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """The reply to a heartbeat: new events, and the state that the worker must adopt."""

    now: datetime  #: the store's clock
    events: Sequence[Event]  #: events for this worker after the heartbeat's ``read_to``, at most BATCH
    read_to: int  #: number of the last event that this reply covers; send it with the next heartbeat
    more: bool  #: whether more events are waiting
    status: WorkerStatus
    target: int
    target_seq: int
    drain_deadline: datetime | None
    run_status: RunStatus | None  #: None when the pool does not belong to a run
    run_phase: str | None
    controller_until: datetime | None  #: when the controller's lease on the pool expires; None if the pool has no lease


class Membership(Protocol):
    """The worker registry as workers use it. Until a worker ends, only the process that joined as it may write its row."""

    async def join(self, joining: JoinRequest) -> Worker:
        """Take the row that a controller added for this worker, or create a row. The same process can safely join again.

        Raises WorkerGone if the worker has ended or another process has joined as this worker, NotFound if there is no pool.
        """
        ...

    async def beat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        """Write a heartbeat and its sample, and read new events, in one round trip. Writes nothing if it raises WorkerGone."""
        ...

    async def move(
        self,
        pool_id: PoolId,
        worker_id: WorkerId,
        instance: str,
        to: WorkerStatus,
        reason: str,
        change: WorkerChange | None = None,
    ) -> Worker:
        """Move this worker to another status. Does nothing if it has that status already. Raises IllegalMove, WorkerGone."""
        ...


class Events(Protocol):
    """One log of events per pool. Numbers rise by one in commit order, so a reader that has read N never misses N+1."""

    async def append(self, pool_id: PoolId, events: Sequence[NewEvent], *, fence: Fence | None = None) -> Sequence[Event]:
        """Number events and store them. Raises NotFound if the pool does not exist."""
        ...

    async def read(self, pool_id: PoolId, after: int, limit: int = BATCH) -> Sequence[Event]:
        """Return the events numbered above ``after``, in order."""
        ...


class Leases(Protocol):
    """Leases by name: only the owner may act. They expire by the store's clock; epochs rise and are never used twice."""

    async def acquire(self, name: str, owner: str, ttl: timedelta) -> Lease | None:
        """Acquire a free or expired lease, with a new epoch. Returns None while it is held, even by ``owner`` itself."""
        ...

    async def renew(self, lease: Lease, ttl: timedelta) -> Lease:
        """Extend a lease to ``ttl`` from now. Raises Fenced if it was released, or if it expired and was acquired again."""
        ...

    async def release(self, lease: Lease) -> None:
        """Release a lease, so that another owner can acquire it at once. Does nothing if it is no longer held."""
        ...

    async def find(self, name: str) -> Lease | None:
        """Return the lease with this name and its last owner, even if the lease has expired; None if it never existed."""
        ...
