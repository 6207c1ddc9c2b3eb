"""Who is there, what they shall do, and who may say so: pools, workers, events, leases."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from drumbeat.core.event import Event, NewEvent, WorkerTarget
from drumbeat.core.lease import Fence, Lease
from drumbeat.core.pool import PoolId, PoolKind, PoolRow, Thresholds
from drumbeat.core.run import RunStatus
from drumbeat.core.sample import Sample
from drumbeat.core.worker import Holder, Worker, WorkerId, WorkerStatus

BATCH = 100  #: how many events one read brings at most
UNREAPED = 1000  #: how many ended workers that are not known to be gone one read brings at most


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChange:
    """What of a pool is to be another. What is not named stays as it is, whoever changes it at the same time."""

    policy: Mapping[str, Any] = field(default_factory=dict)  #: joins what the pool has: a name that is there gets the new value
    dropped: Collection[str] = ()  #: names that the policy has no longer, unless ``policy`` has them
    thresholds: Thresholds | None = None
    paused_until: datetime | None = None
    resumed: bool = False  #: its pause is over

    def policy_of(self, policy: Mapping[str, Any]) -> dict[str, Any]:
        """A policy as it is with this change."""
        return {**{name: value for name, value in policy.items() if name not in self.dropped}, **self.policy}

    def of(self, pool: PoolRow) -> PoolRow:
        """The pool as it is with this change."""
        return replace(
            pool,
            policy=self.policy_of(pool.policy),
            thresholds=self.thresholds or pool.thresholds,
            paused_until=None if self.resumed else self.paused_until or pool.paused_until,
        )


class Pools(Protocol):
    """Named sets of workers."""

    async def create(self, pool: PoolRow) -> PoolRow:
        """Make a pool, with its events counted from 1. Raises AlreadyExists."""
        ...

    async def get(self, pool_id: PoolId) -> PoolRow:
        """Raises NotFound."""
        ...

    async def find(self, pool_id: PoolId) -> PoolRow | None: ...

    async def list(self, kind: PoolKind | None = None) -> Sequence[PoolRow]:
        """All pools, oldest first."""
        ...

    async def save(self, pool: PoolRow, *, fence: Fence | None = None) -> PoolRow:
        """Replace a pool's thresholds, policy and pause, whatever others made of them since. Raises NotFound."""
        ...

    async def change(self, pool_id: PoolId, change: PoolChange, *, fence: Fence | None = None) -> PoolRow:
        """Change only what is named: two changes of different things never undo each other. Raises NotFound."""
        ...

    async def delete(self, pool_id: PoolId) -> None:
        """Remove a pool and everything that belongs to it. Raises Refused while it has live workers."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerChange:
    """What may change with a worker's move. What is None stays as it is."""

    exit_code: int | None = None
    error: str | None = None
    provider_ref: str | None = None
    meta: Mapping[str, Any] | None = None  #: joins what the row has: a name that is there already is given the new value


class Workers(Protocol):
    """The registry, as a controller sees it. Every move of a worker is told by an event in the same transaction."""

    async def add(self, workers: Sequence[Worker], *, fence: Fence | None = None) -> None:
        """Make rows for workers whose processes do not exist yet; all or none. Raises AlreadyExists, NotFound (the pool)."""
        ...

    async def get(self, pool_id: PoolId, worker_id: WorkerId) -> Worker:
        """Raises NotFound."""
        ...

    async def list(self, pool_id: PoolId, *, live: bool = False, gone_since: datetime | None = None) -> Sequence[Worker]:
        """The workers of a pool by slot, then age; only those in a live state if asked. With ``gone_since`` those are left out
        whose instance was known to be gone before then: of a pool that lives long, almost all."""
        ...

    async def list_unreaped(self, pool_id: PoolId, *, named: Collection[WorkerId] = ()) -> Sequence[Worker]:
        """The workers whose instance is not known to be gone: the live ones, and of the ended ones the UNREAPED that ended
        first; and those that are named. By slot, then age. Its cost does not grow with the workers that are gone."""
        ...

    async def list_ended(self, pool_id: PoolId, limit: int) -> Sequence[Worker]:
        """The workers that ended last, the newest first; the cost does not grow with those that ended before."""
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
        """Move a worker that is still as ``worker`` shows it: same state, same heartbeat count.

        Raises IllegalMove if the diagram has no such arrow, StaleWrite if the row has moved or beaten since it was read.
        """
        ...

    async def set_targets(
        self, pool_id: PoolId, targets: Mapping[WorkerId, WorkerTarget], *, fence: Fence | None = None
    ) -> Sequence[Event]:
        """Set workers' targets and tell them, in one transaction. Raises NotFound for a worker that is not live."""
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
        """Give live workers a drain deadline and a STOP event each; answers with those newly asked. Harmless to repeat.

        They are given no jobs from then on (C77), and whoever waits for work in the pool is woken, to hear of it at once.
        """
        ...

    async def note_instance(
        self, pool_id: PoolId, worker_id: WorkerId, ref: str, meta: Mapping[str, Any], *, fence: Fence | None = None
    ) -> None:
        """Keep what a provider calls a worker, and what else it says of it: its price, its place; joins the notes that are
        there. Raises NotFound."""
        ...

    async def mark_reaped(self, pool_id: PoolId, worker_id: WorkerId, *, fence: Fence | None = None) -> None:
        """Record that an ended worker's instance is gone. Raises StaleWrite while it is live, NotFound."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """Who a new process says it is."""

    pool_id: PoolId
    worker_id: WorkerId
    slot: int
    instance: str  #: unique to this process: the only one that may write for the row from now on
    host: str
    pid: int
    provider: str | None = None
    provider_ref: str | None = None
    capabilities: tuple[str, ...] = ()

    @property
    def holder(self) -> Holder:
        """Under what identity the process will hold jobs."""
        return Holder(pool_id=self.pool_id, worker_id=self.worker_id, instance=self.instance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One worker's sign of life, with what it measured and how far it has read."""

    pool_id: PoolId
    worker_id: WorkerId
    instance: str
    read_to: int  #: the last event it has obeyed
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
    """What a heartbeat brings back: news, and the truth to reconcile with."""

    now: datetime  #: the store's clock
    events: Sequence[Event]  #: those after ``read_to`` that are for this worker, at most BATCH
    read_to: int  #: how far the log was looked through for them: what to send with the next heartbeat
    more: bool  #: whether there are more
    status: WorkerStatus
    target: int
    target_seq: int
    drain_deadline: datetime | None
    run_status: RunStatus | None  #: None when the pool is not a run's
    run_phase: str | None
    controller_until: datetime | None  #: when the pool's controller lease runs out; None when there never was one


class Membership(Protocol):
    """The registry, as a worker sees it. Only the process that joined may write, and only while its row is live."""

    async def join(self, joining: Joining) -> Worker:
        """Take a row that waits for its process, or make one. Joining again as the same instance is harmless.

        Raises WorkerGone when the row is closed or another process has joined under the name, NotFound without a pool.
        """
        ...

    async def beat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        """Heartbeat, sample and new events in one round trip. Raises WorkerGone, and then keeps neither."""
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
        """Move oneself. Moving to where one is already is harmless. Raises IllegalMove, WorkerGone."""
        ...


class Events(Protocol):
    """One ordered log per pool: numbers rise by one, in commit order, so whoever reads past N never misses N+1."""

    async def append(self, pool_id: PoolId, events: Sequence[NewEvent], *, fence: Fence | None = None) -> Sequence[Event]:
        """Number and keep events. Raises NotFound without a pool."""
        ...

    async def read(self, pool_id: PoolId, after: int, limit: int = BATCH) -> Sequence[Event]:
        """The events that follow ``after``, in order."""
        ...


class Leases(Protocol):
    """Who may act now. Expiry is judged by the store's clock; epochs rise and are never used twice."""

    async def acquire(self, name: str, owner: str, ttl: timedelta) -> Lease | None:
        """Take a lease nobody holds, under a new epoch. None while another, or oneself, holds it."""
        ...

    async def renew(self, lease: Lease, ttl: timedelta) -> Lease:
        """Keep a lease for ``ttl`` from now. Raises Fenced if it ran out and was taken, or was released."""
        ...

    async def release(self, lease: Lease) -> None:
        """Let go, so that the next may take it at once. Harmless when it is no longer held."""
        ...

    async def find(self, name: str) -> Lease | None:
        """The last known holder, even if the lease has run out."""
        ...
