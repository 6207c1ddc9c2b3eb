"""The worker registry as controllers use it: to add, list and drain workers, and to record their states and their end."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.errors import AlreadyExists, NotFound, StaleWrite
from drumbeat.core.event import Event, WorkerTarget, set_worker_target, stop
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus, check_move, worker_number
from drumbeat.store.interface import UNREAPED, WorkerChange
from drumbeat.store.sql.database import Database, NotifyingQueue, Script, check_fence
from drumbeat.store.sql.events import append_events, moved
from drumbeat.store.sql.rows import at_us, dump, to_us, worker_of

NO_CHANGE = WorkerChange()


class SqlWorkers:
    """Adds, lists and changes rows of ``workers`` for controllers."""

    def __init__(self, database: Database, queue: NotifyingQueue) -> None:
        self._database = database
        self._queue = queue

    async def add(self, workers: Sequence[Worker], *, fence: Fence | None = None) -> None:
        await self._database.transact(_add_workers(workers, fence))

    async def get(self, pool_id: PoolId, worker_id: WorkerId) -> Worker:
        rows = await self._database.read("find_worker", {"pool_id": pool_id, "worker_id": worker_id})
        if not rows:
            raise _no_worker(pool_id, worker_id)
        return worker_of(rows[0])

    async def list(self, pool_id: PoolId, *, live: bool = False, gone_since: datetime | None = None) -> Sequence[Worker]:
        query = "list_workers" if gone_since is None else "list_workers_since"
        values = {"pool_id": pool_id, "gone_since": at_us(gone_since)}
        return [worker_of(row) for row in await self._database.read("list_live_workers" if live else query, values)]

    async def list_unreaped(self, pool_id: PoolId, *, named: Collection[WorkerId] = ()) -> Sequence[Worker]:
        values = {"pool_id": pool_id, "limit": UNREAPED, "named": dump([*named])}
        return [worker_of(row) for row in await self._database.read("list_unreaped_workers", values)]

    async def list_ended(self, pool_id: PoolId, limit: int) -> Sequence[Worker]:
        rows = await self._database.read("list_ended_workers", {"pool_id": pool_id, "limit": limit})
        return [worker_of(row) for row in rows]

    async def move(
        self, worker: Worker, to: WorkerStatus, reason: str, change: WorkerChange | None = None, *, fence: Fence | None = None
    ) -> Worker:
        return await self._database.transact(_move_unchanged(worker, to, reason, change or NO_CHANGE, fence))

    async def set_targets(
        self, pool_id: PoolId, targets: Mapping[WorkerId, WorkerTarget], *, fence: Fence | None = None
    ) -> Sequence[Event]:
        return await self._database.transact(_set_targets(pool_id, targets, fence))

    async def ask_to_drain(
        self, pool_id: PoolId, workers: Sequence[WorkerId], reason: str, within: timedelta, *, fence: Fence | None = None
    ) -> Sequence[WorkerId]:
        asked = await self._database.transact(_ask_to_drain(pool_id, workers, reason, within, fence))
        if asked:
            await self._queue.notify([pool_id])
        return asked

    async def note_instance(
        self, pool_id: PoolId, worker_id: WorkerId, ref: str, meta: Mapping[str, Any], *, fence: Fence | None = None
    ) -> None:
        await self._database.transact(_note_instance(pool_id, worker_id, ref, meta, fence))

    async def mark_reaped(self, pool_id: PoolId, worker_id: WorkerId, *, fence: Fence | None = None) -> None:
        await self._database.transact(_mark_reaped(pool_id, worker_id, fence))


def _no_worker(pool_id: str, worker_id: str) -> NotFound:
    return NotFound(f"there is no worker {worker_id!r} in pool {pool_id!r}; see: drumbeat workers list {pool_id}")


def _add_workers(workers: Sequence[Worker], fence: Fence | None) -> Script[None]:
    yield from check_fence(fence)
    for pool_id in dict.fromkeys(worker.pool_id for worker in workers):
        members = [worker for worker in workers if worker.pool_id == pool_id]
        for worker in members:
            yield from _add_worker(worker)
        yield from note_numbers(pool_id, [worker.worker_id for worker in members])
        events = [moved(worker, None, WorkerStatus.SPAWNING, "asked for", NO_CHANGE) for worker in members]
        yield from append_events(pool_id, events)


def _add_worker(worker: Worker) -> Script[None]:
    rows = yield (
        "add_worker",
        {
            "pool_id": worker.pool_id,
            "worker_id": worker.worker_id,
            "slot": worker.slot,
            "provider": worker.provider,
            "provider_ref": worker.provider_ref,
            "capabilities": dump(list(worker.capabilities)),
            "target": worker.target,
            "meta": dump(dict(worker.meta)),
        },
    )
    if not rows:
        raise AlreadyExists(f"worker {worker.worker_id!r} of pool {worker.pool_id!r} already exists; choose another id")


def note_numbers(pool_id: PoolId, names: Sequence[WorkerId]) -> Script[None]:
    """Record in the pool's row the highest N of these worker ids (``…worker-N``), so that no deleted worker's id is reused."""
    numbers = [number for name in names if (number := worker_number(name)) is not None]
    if numbers:
        yield "note_worker_number", {"pool_id": pool_id, "number": max(numbers)}


def locked(pool_id: PoolId, worker_id: WorkerId) -> Script[Worker | None]:
    rows = yield "lock_worker", {"pool_id": pool_id, "worker_id": worker_id}
    return worker_of(rows[0]) if rows else None


def _move_unchanged(worker: Worker, to: WorkerStatus, reason: str, change: WorkerChange, fence: Fence | None) -> Script[Worker]:
    yield from check_fence(fence)
    row = yield from locked(worker.pool_id, worker.worker_id)
    if row is None:
        raise _no_worker(worker.pool_id, worker.worker_id)
    if (row.status, row.heartbeat_count) != (worker.status, worker.heartbeat_count):
        raise StaleWrite(
            f"worker {worker.worker_id}: expected status {worker.status} with {worker.heartbeat_count} heartbeats, "
            f"found {row.status} with {row.heartbeat_count}; read the worker again and decide again"
        )
    check_move(worker.worker_id, row.status, to)
    return (yield from move_row(row, to, reason, change))


def move_row(worker: Worker, to: WorkerStatus, reason: str, change: WorkerChange) -> Script[Worker]:
    rows = yield (
        "move_worker",
        {
            "pool_id": worker.pool_id,
            "worker_id": worker.worker_id,
            "to_status": to,
            "exit_code": change.exit_code,
            "error": change.error,
            "provider_ref": change.provider_ref,
            "meta": None if change.meta is None else dump(dict(worker.meta) | dict(change.meta)),
        },
    )
    yield from append_events(worker.pool_id, [moved(worker, worker.status, to, reason, change)])
    return worker_of(rows[0])


def _set_targets(pool_id: PoolId, targets: Mapping[WorkerId, WorkerTarget], fence: Fence | None) -> Script[list[Event]]:
    yield from check_fence(fence)
    for worker_id in sorted(targets):
        row = yield from locked(pool_id, worker_id)
        if row is None or not row.is_live:
            raise NotFound(f"cannot set the target of worker {worker_id!r} of pool {pool_id!r}: the worker is not live")
    events = yield from append_events(pool_id, [set_worker_target(worker, target) for worker, target in targets.items()])
    for event, target in zip(events, targets.values(), strict=True):
        yield (
            "set_target",
            {
                "pool_id": pool_id,
                "worker_id": event.worker_id,
                "target": target.connections,
                "target_seq": event.sequence_id,
            },
        )
    return events


def _ask_to_drain(
    pool_id: PoolId, workers: Sequence[WorkerId], reason: str, within: timedelta, fence: Fence | None
) -> Script[list[WorkerId]]:
    yield from check_fence(fence)
    asked: list[WorkerId] = []
    for worker_id in sorted(set(workers)):
        if (yield "set_drain_deadline", {"pool_id": pool_id, "worker_id": worker_id, "within": to_us(within)}):
            asked.append(worker_id)
    yield from append_events(pool_id, [stop(reason, within, worker_id) for worker_id in asked])
    return asked


def _note_instance(
    pool_id: PoolId, worker_id: WorkerId, ref: str, meta: Mapping[str, Any], fence: Fence | None
) -> Script[None]:
    yield from check_fence(fence)
    row = yield from locked(pool_id, worker_id)
    if row is None:
        raise _no_worker(pool_id, worker_id)
    notes = dump(dict(row.meta) | dict(meta))
    yield "note_instance", {"pool_id": pool_id, "worker_id": worker_id, "provider_ref": ref, "meta": notes}


def _mark_reaped(pool_id: PoolId, worker_id: WorkerId, fence: Fence | None) -> Script[None]:
    yield from check_fence(fence)
    if (yield "mark_reaped", {"pool_id": pool_id, "worker_id": worker_id}):
        return
    row = yield from locked(pool_id, worker_id)
    if row is None:
        raise _no_worker(pool_id, worker_id)
    raise StaleWrite(f"worker {worker_id}: expected an ended status, got {row.status}; end the worker first")
