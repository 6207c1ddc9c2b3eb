"""What a contract's tests begin with: names nobody has used, and rows in the states they are about."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from drumbeat.core.event import EventType
from drumbeat.core.histogram import Histogram
from drumbeat.core.lease import Fence, Lease
from drumbeat.core.pool import PoolId, PoolKind, PoolRow
from drumbeat.core.pool import pool as pool_of
from drumbeat.core.run import Run, RunId
from drumbeat.core.sample import Sample
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.store.interface import Heartbeat, Joining, Store

Elapse = Callable[[timedelta], Awaitable[None]]  #: "so much time passes"

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)

W1, W2, W3 = WorkerId("w1"), WorkerId("w2"), WorkerId("w3")

AWKWARD: Mapping[str, Any] = {
    "unicode": "Grüße, 世界 🥁 \u2028 \\ \" '",
    "nested": {"list": [1, 2.5, None, True, {"deep": []}], "empty": {}},
    "large": 2**53 - 1,
    "negative": -0.125,
    "nothing": None,
}  #: JSON that a careless column would spoil


class Given:
    """The fixtures that no backend needs to know; ``store`` and ``elapse`` are the backend's own."""

    @pytest.fixture
    async def pool(self, store: Store) -> PoolRow:
        """A new pool that only this test knows."""
        return await store.pools.create(new_pool())

    @pytest.fixture
    async def lease(self, store: Store, pool: PoolRow) -> Lease:
        """The pool's controller lease, held for an hour."""
        return await taken(store, pool.pool_id)


def unique(prefix: str) -> str:
    """A name nobody has used in this store."""
    return f"{prefix}-{uuid4().hex[:12]}"


def new_pool(kind: PoolKind = PoolKind.BENCH, **policy: Any) -> PoolRow:
    return pool_of(unique("pool"), kind, **policy)


async def new_run(store: Store, **config: Any) -> Run:
    """A run, and the pool of its id."""
    run_id = unique("run")
    run = Run(run_id=RunId(run_id), name="a run", config=config)
    return await store.runs.create(run, pool_of(run_id, PoolKind.BENCH))


async def taken(store: Store, name: str, owner: str = "a", ttl: timedelta = timedelta(hours=1)) -> Lease:
    """A lease that nobody held."""
    lease = await store.leases.acquire(name, owner, ttl)
    assert lease is not None
    return lease


async def outdated(store: Store, lease: Lease) -> Fence:
    """The fence of a controller whose lease another has taken since."""
    await store.leases.release(lease)
    await taken(store, lease.name, owner="another")
    return lease.fence


def worker_row(pool: PoolRow, worker_id: WorkerId = W1, slot: int = 0, **known: Any) -> Worker:
    return Worker(pool_id=pool.pool_id, worker_id=worker_id, slot=slot, **known)


async def added(store: Store, pool: PoolRow, *names: WorkerId) -> Worker:
    """Workers whose processes do not exist yet, in slots 0, 1, …; answers with the first."""
    await store.workers.add([worker_row(pool, name, slot) for slot, name in enumerate(names or (W1,))])
    return await store.workers.get(pool.pool_id, names[0] if names else W1)


def joining(pool_id: PoolId, worker_id: WorkerId = W1, instance: str = "i1", **said: Any) -> Joining:
    who: dict[str, Any] = {"slot": 0, "host": "host-1", "pid": 4711} | said
    return Joining(pool_id=pool_id, worker_id=worker_id, instance=instance, **who)


async def joined(store: Store, pool: PoolRow, worker_id: WorkerId = W1, slot: int = 0) -> Worker:
    """A worker whose process ``i1`` has joined."""
    return await store.membership.join(joining(pool.pool_id, worker_id, slot=slot))


async def moved(store: Store, worker: Worker, *path: WorkerStatus) -> Worker:
    """The worker after it moved itself along a path."""
    for status in path:
        worker = await store.membership.move(worker.pool_id, worker.worker_id, worker.instance or "", status, "on its way")
    return worker


async def active(store: Store, pool: PoolRow, worker_id: WorkerId = W1) -> Worker:
    return await moved(store, await joined(store, pool, worker_id), WorkerStatus.WAITING, WorkerStatus.ACTIVE)


async def lost(store: Store, pool: PoolRow, worker_id: WorkerId = W1) -> Worker:
    """A worker that joined, and that a controller has given up."""
    return await store.workers.move(await active(store, pool, worker_id), WorkerStatus.LOST, "silent too long")


def heartbeat(worker: Worker, read_to: int = 0, **said: Any) -> Heartbeat:
    who: dict[str, Any] = {"instance": worker.instance or ""} | said
    return Heartbeat(pool_id=worker.pool_id, worker_id=worker.worker_id, read_to=read_to, **who)


def sample(n: int, *latencies: int, **measured: Any) -> Sample:
    """The ``n``-th sample of a worker, with these latencies in nanoseconds."""
    histogram = Histogram()
    histogram.record_all(latencies)
    return Sample(n=n, interval=SECOND, operations=len(latencies), latency=histogram, **measured)


async def moves(store: Store, pool_id: PoolId) -> Sequence[Mapping[str, Any]]:
    """What the pool's events tell of its workers' moves, in order."""
    return [event.payload for event in await store.events.read(pool_id, 0) if event.type == EventType.WORKER_MOVED]


async def told(store: Store, pool_id: PoolId) -> Sequence[tuple[int, str]]:
    """Number and type of each of the pool's events."""
    return [(event.sequence_id, event.type) for event in await store.events.read(pool_id, 0)]
