"""Fixtures and functions that set up the tests of stores: unique names, and rows in given states."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from drumbeat.core.event import EventType
from drumbeat.core.histogram import Histogram
from drumbeat.core.lease import Fence, Lease
from drumbeat.core.pool import PoolId, PoolKind, PoolRow, pool as pool_of
from drumbeat.core.run import Run, RunId
from drumbeat.core.sample import Sample
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.store.interface import Heartbeat, JoinRequest, Store

Elapse = Callable[[timedelta], Awaitable[None]]  #: type of the fixture ``elapse``, which simulates that time passes

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
}  #: unusual JSON: a store with a bug might not return exactly what was written


class Given:
    """Fixtures shared by the tests of all stores; each store's test file provides ``store`` and ``elapse`` (lets time pass)."""

    @pytest.fixture
    async def pool(self, store: Store) -> PoolRow:
        """Create a pool that only this test uses."""
        return await store.pools.create(new_pool())

    @pytest.fixture
    async def lease(self, store: Store, pool: PoolRow) -> Lease:
        """Acquire the lease of the pool's controller for an hour."""
        return await taken(store, pool.pool_id)


def unique(prefix: str) -> str:
    """Return a name that no other test uses: the prefix and a random ending."""
    return f"{prefix}-{uuid4().hex[:12]}"


def new_pool(kind: PoolKind = PoolKind.JOBS, **policy: Any) -> PoolRow:
    return pool_of(unique("pool"), kind, **policy)


async def new_run(store: Store, **config: Any) -> Run:
    """Create a benchmark run, and a pool with the same id."""
    run_id = unique("run")
    run = Run(run_id=RunId(run_id), name="a run", config=config)
    return await store.runs.create(run, pool_of(run_id, PoolKind.BENCH))


async def taken(store: Store, name: str, owner: str = "a", ttl: timedelta = timedelta(hours=1)) -> Lease:
    """Acquire a lease; fail the test if another owner holds it."""
    lease = await store.leases.acquire(name, owner, ttl)
    assert lease is not None
    return lease


async def outdated(store: Store, lease: Lease) -> Fence:
    """Return a fence (lease and epoch) that no longer permits writes: another controller has taken the lease since."""
    await store.leases.release(lease)
    await taken(store, lease.name, owner="another")
    return lease.fence


def worker_row(pool: PoolRow, worker_id: WorkerId = W1, slot: int = 0, **fields: Any) -> Worker:
    return Worker(pool_id=pool.pool_id, worker_id=worker_id, slot=slot, **fields)


async def added(store: Store, pool: PoolRow, *names: WorkerId) -> Worker:
    """Add rows of workers that have no process yet, in slots 0, 1, …. Returns the first row."""
    await store.workers.add([worker_row(pool, name, slot) for slot, name in enumerate(names or (W1,))])
    return await store.workers.get(pool.pool_id, names[0] if names else W1)


def joining(pool_id: PoolId, worker_id: WorkerId = W1, instance: str = "i1", **changed: Any) -> JoinRequest:
    fields: dict[str, Any] = {"slot": 0, "host": "host-1", "pid": 4711} | changed
    return JoinRequest(pool_id=pool_id, worker_id=worker_id, instance=instance, **fields)


async def joined(store: Store, pool: PoolRow, worker_id: WorkerId = W1, slot: int = 0) -> Worker:
    """Let a process (named ``i1``) join the pool as this worker, and return the worker's row."""
    return await store.membership.join(joining(pool.pool_id, worker_id, slot=slot))


async def moved(store: Store, worker: Worker, *path: WorkerStatus) -> Worker:
    """Let the worker move itself through these statuses, and return its row."""
    for status in path:
        worker = await store.membership.move(worker.pool_id, worker.worker_id, worker.instance or "", status, "on its way")
    return worker


async def active(store: Store, pool: PoolRow, worker_id: WorkerId = W1) -> Worker:
    return await moved(store, await joined(store, pool, worker_id), WorkerStatus.WAITING, WorkerStatus.ACTIVE)


async def lost(store: Store, pool: PoolRow, worker_id: WorkerId = W1) -> Worker:
    """Create a worker, let its process join, and then mark the worker as lost, as a controller does."""
    return await store.workers.move(await active(store, pool, worker_id), WorkerStatus.LOST, "silent too long")


def heartbeat(worker: Worker, read_to: int = 0, **changed: Any) -> Heartbeat:
    fields: dict[str, Any] = {"instance": worker.instance or ""} | changed
    return Heartbeat(pool_id=worker.pool_id, worker_id=worker.worker_id, read_to=read_to, **fields)


def sample(n: int, *latencies: int, **measured: Any) -> Sample:
    """Return a worker's ``n``-th sample: one operation for each of these latencies (nanoseconds)."""
    histogram = Histogram()
    histogram.record_all(latencies)
    return Sample(n=n, interval=SECOND, operations=len(latencies), latency=histogram, **measured)


async def moves(store: Store, pool_id: PoolId) -> Sequence[Mapping[str, Any]]:
    """Return the payloads of the pool's WORKER_MOVED events, oldest first."""
    return [event.payload for event in await store.events.read(pool_id, 0) if event.type == EventType.WORKER_MOVED]


async def event_types(store: Store, pool_id: PoolId) -> Sequence[tuple[int, str]]:
    """Return the number and type of each event of the pool, oldest first."""
    return [(event.sequence_id, event.type) for event in await store.events.read(pool_id, 0)]
