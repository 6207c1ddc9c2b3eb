"""Fixtures and functions that set up the contract tests: unique names, and rows in given states."""

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

Elapse = Callable[[timedelta], Awaitable[None]]  #: lets time pass in the store

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
}  #: JSON that is easily damaged when it is stored


class Given:
    """Fixtures shared by all backends; each backend provides ``store`` and ``elapse``."""

    @pytest.fixture
    async def pool(self, store: Store) -> PoolRow:
        """A new pool that only this test uses."""
        return await store.pools.create(new_pool())

    @pytest.fixture
    async def lease(self, store: Store, pool: PoolRow) -> Lease:
        """The pool's controller lease, held for an hour."""
        return await taken(store, pool.pool_id)


def unique(prefix: str) -> str:
    """A name that is not used in this store yet."""
    return f"{prefix}-{uuid4().hex[:12]}"


def new_pool(kind: PoolKind = PoolKind.BENCH, **policy: Any) -> PoolRow:
    return pool_of(unique("pool"), kind, **policy)


async def new_run(store: Store, **config: Any) -> Run:
    """A new run, with a pool of the same id."""
    run_id = unique("run")
    run = Run(run_id=RunId(run_id), name="a run", config=config)
    return await store.runs.create(run, pool_of(run_id, PoolKind.BENCH))


async def taken(store: Store, name: str, owner: str = "a", ttl: timedelta = timedelta(hours=1)) -> Lease:
    """Acquire a lease that is free."""
    lease = await store.leases.acquire(name, owner, ttl)
    assert lease is not None
    return lease


async def outdated(store: Store, lease: Lease) -> Fence:
    """The fence of a controller whose lease another controller has taken since."""
    await store.leases.release(lease)
    await taken(store, lease.name, owner="another")
    return lease.fence


def worker_row(pool: PoolRow, worker_id: WorkerId = W1, slot: int = 0, **fields: Any) -> Worker:
    return Worker(pool_id=pool.pool_id, worker_id=worker_id, slot=slot, **fields)


async def added(store: Store, pool: PoolRow, *names: WorkerId) -> Worker:
    """Add workers whose processes do not exist yet, in slots 0, 1, …. Returns the first."""
    await store.workers.add([worker_row(pool, name, slot) for slot, name in enumerate(names or (W1,))])
    return await store.workers.get(pool.pool_id, names[0] if names else W1)


def joining(pool_id: PoolId, worker_id: WorkerId = W1, instance: str = "i1", **changed: Any) -> Joining:
    fields: dict[str, Any] = {"slot": 0, "host": "host-1", "pid": 4711} | changed
    return Joining(pool_id=pool_id, worker_id=worker_id, instance=instance, **fields)


async def joined(store: Store, pool: PoolRow, worker_id: WorkerId = W1, slot: int = 0) -> Worker:
    """A worker whose process ``i1`` has joined."""
    return await store.membership.join(joining(pool.pool_id, worker_id, slot=slot))


async def moved(store: Store, worker: Worker, *path: WorkerStatus) -> Worker:
    """The worker after it moved itself through these statuses."""
    for status in path:
        worker = await store.membership.move(worker.pool_id, worker.worker_id, worker.instance or "", status, "on its way")
    return worker


async def active(store: Store, pool: PoolRow, worker_id: WorkerId = W1) -> Worker:
    return await moved(store, await joined(store, pool, worker_id), WorkerStatus.WAITING, WorkerStatus.ACTIVE)


async def lost(store: Store, pool: PoolRow, worker_id: WorkerId = W1) -> Worker:
    """A worker that joined and was marked lost by a controller."""
    return await store.workers.move(await active(store, pool, worker_id), WorkerStatus.LOST, "silent too long")


def heartbeat(worker: Worker, read_to: int = 0, **changed: Any) -> Heartbeat:
    fields: dict[str, Any] = {"instance": worker.instance or ""} | changed
    return Heartbeat(pool_id=worker.pool_id, worker_id=worker.worker_id, read_to=read_to, **fields)


def sample(n: int, *latencies: int, **measured: Any) -> Sample:
    """The ``n``-th sample of a worker, with these latencies in nanoseconds."""
    histogram = Histogram()
    histogram.record_all(latencies)
    return Sample(n=n, interval=SECOND, operations=len(latencies), latency=histogram, **measured)


async def moves(store: Store, pool_id: PoolId) -> Sequence[Mapping[str, Any]]:
    """The payloads of the pool's WORKER_MOVED events, in order."""
    return [event.payload for event in await store.events.read(pool_id, 0) if event.type == EventType.WORKER_MOVED]


async def event_types(store: Store, pool_id: PoolId) -> Sequence[tuple[int, str]]:
    """The number and type of each event of the pool."""
    return [(event.sequence_id, event.type) for event in await store.events.read(pool_id, 0)]
