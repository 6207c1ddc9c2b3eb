"""More workers for a pool, as many as its queue is worth: rows first, under the pool's lock, then processes."""

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
class QueueStanding:
    """How a pool's queue and its workers stand."""

    pending: int
    capacity: int  #: workers that are starting or active
    busy: int  #: those of them that hold a job

    def wanted(self, cap: int) -> int:
        """How many more workers there should be: one for each job nobody is free for, up to the cap (C50, C51)."""
        return max(min(self.pending - (self.capacity - self.busy), cap - self.capacity), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedWorkers:
    """Workers somebody asks for."""

    pool_id: str
    cap: int  #: how many the pool may have in all
    machine: str  #: the machine each shall run
    given: Mapping[str, Any]  #: its input, beside pool_id and worker_id
    asked: int | None = None  #: no more than so many, whatever the queue is worth
    parent: str | None = None
    successors: bool = False  #: whether each calls for its successor when it leaves
    leaving: str | None = None  #: the worker that asks because it leaves: its process is as good as gone


async def standing(desk: PoolClaims, pool_id: str) -> QueueStanding:
    """How a pool stands now."""
    pool = await desk.work.place.pool(pool_id)
    await desk.registration.place.pool(pool_id)
    live = {row.worker_id for row in await (await desk.registration.place.store()).workers.list(pool, live=True)}
    claimed = await (await desk.work.place.store()).jobs.list(pool, statuses=[JobStatus.CLAIMED], limit=MOST_CLAIMS)
    busy = live & {job.lease_owner for job in claimed if job.lease_pool == pool}
    return QueueStanding(pending=await desk.work.pool(pool_id).size(), capacity=len(live), busy=len(busy))


async def spawn_workers(desk: PoolClaims, origin: Origin, wish: RequestedWorkers) -> list[str]:
    """Start what the pool is short of. Answers with the workers' ids; those that could not be started are ended."""
    plane = await desk.registration.place.plane()
    started = []
    async with plane.local_spawner(survive=True) as spawner:
        for row in await _ask_for(desk, plane, spawner, wish):
            given = {**wish.given, "pool_id": wish.pool_id, "worker_id": row.worker_id}
            command = origin.command(wish.machine, given, f"{row.worker_id}-{uuid4().hex[:8]}", wish.parent)
            command += ("--successors", str(wish.cap)) if wish.successors else ()
            count = max(wish.cap, row.slot + 1)
            order = Order(pool_id=row.pool_id, worker_id=row.worker_id, slot=row.slot, group_count=count, command=command)
            try:
                await spawner.spawn(order)
            except SpawnError as exc:
                log.warning("worker %s was not started: %s", row.worker_id, exc)
                await plane.store.workers.move(row, WorkerStatus.ERROR, str(exc))
            else:
                started.append(str(row.worker_id))
    return started


async def launch(
    desk: PoolClaims, origin: Origin, machine: str, given: Mapping[str, Any], execution_id: str, parent: str
) -> None:
    """Run a machine in a process of its own, and do not wait for it. It is no worker: no row is made for it."""
    plane = await desk.registration.place.plane()
    command = origin.command(machine, given, execution_id, parent)
    name = PoolId(f"{LAUNCHED}{machine}")
    async with plane.local_spawner(survive=True) as spawner:
        await spawner.spawn(Order(pool_id=name, worker_id=WorkerId(execution_id), slot=0, group_count=1, command=command))


async def _ask_for(desk: PoolClaims, plane: ControlPlane, spawner: Spawner, wish: RequestedWorkers) -> list[Worker]:
    """Rows for the workers to come. Whoever looks next sees them, so two checkers never start more than the cap (C52)."""
    pool_id = await desk.registration.place.pool(wish.pool_id)
    async with _locked(desk, plane, pool_id) as lease:
        count = (await standing(desk, wish.pool_id)).wanted(wish.cap)
        room = await _room(plane, spawner, pool_id, wish)
        count = min(count, room, count if wish.asked is None else wish.asked)
        if count and not plane.store.traits.shared:
            raise InvalidSettings(f"expected a store other processes see, to start workers on; got {plane.store.traits.name}")
        taken = {row.slot for row in await plane.store.workers.list(pool_id, live=True)}
        free = [slot for slot in range(len(taken) + count) if slot not in taken]
        rows = [
            Worker(pool_id=pool_id, worker_id=WorkerId(new_worker_id(pool_id)), slot=slot, provider="local")
            for slot in free[:count]
        ]
        if rows:
            await plane.store.workers.add(rows, fence=lease.fence)
    return rows


async def _room(plane: ControlPlane, spawner: Spawner, pool_id: PoolId, wish: RequestedWorkers) -> int:
    """How many more may run: a worker that was given up counts for as long as its process runs, one that leaves does not."""
    running = {one.worker_id for one in await spawner.list(pool_id) if one.state is not InstanceState.EXITED}
    live = {row.worker_id for row in await plane.store.workers.list(pool_id, live=True)}
    return max(wish.cap - len((running | live) - {wish.leaving}), 0)


@asynccontextmanager
async def _locked(desk: PoolClaims, plane: ControlPlane, pool_id: PoolId) -> AsyncIterator[Lease]:
    """The pool's own lease, the one ``drumbeat pool check`` takes too."""
    owner, until = process_name(), desk.clock.elapsed() + _LOCK
    while (lease := await plane.store.leases.acquire(pool_id, owner, _LOCK)) is None:
        if desk.clock.elapsed() > until:
            raise Fenced(f"another checker has held pool {pool_id} for over {_LOCK}; no worker was started, try again")
        await desk.clock.sleep(_POLL)
    try:
        yield lease
    finally:
        await plane.store.leases.release(lease)
