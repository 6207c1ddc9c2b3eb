"""Starts as many workers as a pool's queue needs: adds their rows while holding the pool's lease, then starts processes."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from drumbeat.adapters.flatmachines.registration import MOST_CLAIMS
from drumbeat.adapters.flatmachines.session import Origin, PoolClaims, new_worker_id
from drumbeat.composition.base import process_name
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import Fenced, InvalidSettings, SpawnError
from drumbeat.core.job import JobStatus
from drumbeat.core.lease import Lease
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.spawn.interface import LAUNCHED, InstanceState, Order, Spawner

log = logging.getLogger(__name__)

_LOCK = timedelta(seconds=30)
_POLL = timedelta(milliseconds=50)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """How many jobs of a pool can be claimed now, and how many workers it has."""

    pending: int
    capacity: int  #: live workers, from their start to their end
    busy: int  #: workers that hold a job

    def missing_workers(self, cap: int) -> int:
        """Return how many more workers are needed: one for each pending job without a free worker. The pool never gets more
        than ``cap`` workers in total."""
        return max(min(self.pending - (self.capacity - self.busy), cap - self.capacity), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedWorkers:
    """A request to start workers of a pool: which state machine they run, with which input, and how many at most."""

    pool_id: str
    cap: int  #: most workers that the pool may have in total
    machine: str  #: the machine that each worker runs
    given: Mapping[str, Any]  #: the machine's input, besides pool_id and worker_id
    asked: int | None = None  #: start at most this many, even if the queue needs more; None: no such limit
    parent: str | None = None
    successors: bool = False  #: whether each worker, at its end, starts workers for remaining jobs
    leaving: str | None = None  #: the worker that makes this request at its end; it does not count as running


async def count_jobs_and_workers(backends: PoolClaims, pool_id: str) -> QueueCounts:
    """Count the pending jobs and the workers of a pool now."""
    pool = await backends.work.place.pool(pool_id)
    await backends.registration.place.pool(pool_id)
    live = {row.worker_id for row in await (await backends.registration.place.store()).workers.list(pool, live=True)}
    claimed = await (await backends.work.place.store()).jobs.list(pool, statuses=[JobStatus.CLAIMED], limit=MOST_CLAIMS)
    busy = live & {job.lease_owner for job in claimed if job.lease_pool == pool}
    return QueueCounts(pending=await backends.work.pool(pool_id).size(), capacity=len(live), busy=len(busy))


async def spawn_workers(backends: PoolClaims, origin: Origin, workers: RequestedWorkers) -> list[str]:
    """Start the workers that the pool needs. Returns their ids. A worker that cannot be started gets the status error."""
    plane = await backends.registration.place.plane()
    started = []
    async with plane.local_spawner(survive=True) as spawner:
        for row in await _add_rows(backends, plane, spawner, workers):
            given = {**workers.given, "pool_id": workers.pool_id, "worker_id": row.worker_id}
            command = origin.command(workers.machine, given, f"{row.worker_id}-{uuid4().hex[:8]}", workers.parent)
            command += ("--successors", str(workers.cap)) if workers.successors else ()
            count = max(workers.cap, row.slot + 1)
            order = Order(pool_id=row.pool_id, worker_id=row.worker_id, slot=row.slot, group_count=count, command=command)
            try:
                await spawner.spawn(order)
            except SpawnError as exc:
                log.warning("failed to start worker %s: %s; its status is now error", row.worker_id, exc)
                await plane.store.workers.move(row, WorkerStatus.ERROR, str(exc))
            else:
                started.append(str(row.worker_id))
    return started


async def launch(
    backends: PoolClaims, origin: Origin, machine: str, given: Mapping[str, Any], execution_id: str, parent: str
) -> None:
    """Start a state machine in a separate process, and do not wait for it. The process is no worker and has no row."""
    plane = await backends.registration.place.plane()
    command = origin.command(machine, given, execution_id, parent)
    name = PoolId(f"{LAUNCHED}{machine}")
    async with plane.local_spawner(survive=True) as spawner:
        await spawner.spawn(Order(pool_id=name, worker_id=WorkerId(execution_id), slot=0, group_count=1, command=command))


async def _add_rows(backends: PoolClaims, plane: ControlPlane, spawner: Spawner, workers: RequestedWorkers) -> list[Worker]:
    """Add rows for the workers to start. Other processes count these rows too, so that the total never exceeds the cap."""
    pool_id = await backends.registration.place.pool(workers.pool_id)
    async with _locked(backends, plane, pool_id) as lease:
        count = (await count_jobs_and_workers(backends, workers.pool_id)).missing_workers(workers.cap)
        room = await _room(plane, spawner, pool_id, workers)
        count = min(count, room, count if workers.asked is None else workers.asked)
        if count and not plane.store.traits.shared:
            raise InvalidSettings(
                f"expected a store that other processes can use, so that workers can be started, got {plane.store.traits.name}"
            )
        taken = {row.slot for row in await plane.store.workers.list(pool_id, live=True)}
        free = [slot for slot in range(len(taken) + count) if slot not in taken]
        rows = [
            Worker(pool_id=pool_id, worker_id=WorkerId(new_worker_id(pool_id)), slot=slot, provider="local")
            for slot in free[:count]
        ]
        if rows:
            await plane.store.workers.add(rows, fence=lease.fence)
    return rows


async def _room(plane: ControlPlane, spawner: Spawner, pool_id: PoolId, workers: RequestedWorkers) -> int:
    """Return how many more workers ``workers.cap`` allows. A lost worker counts while its process runs. The worker
    ``workers.leaving``, which makes this request at its own end, does not count."""
    running = {one.worker_id for one in await spawner.list(pool_id) if one.state is not InstanceState.EXITED}
    live = {row.worker_id for row in await plane.store.workers.list(pool_id, live=True)}
    return max(workers.cap - len((running | live) - {workers.leaving}), 0)


@asynccontextmanager
async def _locked(backends: PoolClaims, plane: ControlPlane, pool_id: PoolId) -> AsyncIterator[Lease]:
    """Hold the pool's lease, as ``drumbeat pool check`` does too. Raises Fenced if another process holds it too long."""
    owner, until = process_name(), backends.clock.elapsed() + _LOCK
    while (lease := await plane.store.leases.acquire(pool_id, owner, _LOCK)) is None:
        if backends.clock.elapsed() > until:
            raise Fenced(f"no worker was started: another process has held the lease of {pool_id} for over {_LOCK}; try again")
        await backends.clock.sleep(_POLL)
    try:
        yield lease
    finally:
        await plane.store.leases.release(lease)
