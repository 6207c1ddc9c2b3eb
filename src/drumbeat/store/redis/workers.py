"""A controller's reads and writes about workers, in Redis."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.errors import IllegalMove
from drumbeat.core.event import Event, WorkerTarget, set_worker_target, stop
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import MOVES, Worker, WorkerId, WorkerStatus, check_move
from drumbeat.store.interface import UNREAPED, WorkerChange
from drumbeat.store.redis.database import Argument, RedisDatabase
from drumbeat.store.redis.rows import at_us, decoded_event, dump, fence_arguments, instant, to_us, worker_of

_ALL = 1_000_000_000


class RedisWorkers:
    def __init__(self, database: RedisDatabase) -> None:
        self._database = database

    async def add(self, workers: Sequence[Worker], *, fence: Fence | None = None) -> None:
        arguments = [argument for worker in workers for argument in _row_arguments(worker)]
        await self._database.run("worker_add", *fence_arguments(fence), *arguments)

    async def get(self, pool_id: PoolId, worker_id: WorkerId) -> Worker:
        return worker_of(pool_id, await self._database.run("worker_get", pool_id, worker_id))

    async def list(self, pool_id: PoolId, *, live: bool = False, gone_since: datetime | None = None) -> Sequence[Worker]:
        if live or gone_since is None:
            return _by_slot(pool_id, await self._database.run("worker_list", pool_id, "live" if live else "workers"))
        return _by_slot(pool_id, await self._database.run("worker_some", pool_id, _ALL, at_us(gone_since)))

    async def list_unreaped(self, pool_id: PoolId, *, named: Collection[WorkerId] = ()) -> Sequence[Worker]:
        return _by_slot(pool_id, await self._database.run("worker_some", pool_id, UNREAPED, None, *named))

    async def list_ended(self, pool_id: PoolId, limit: int) -> Sequence[Worker]:
        rows = await self._database.run("worker_ended", pool_id, limit)
        return [worker_of(pool_id, row) for row in rows]

    async def move(
        self,
        worker: Worker,
        to: WorkerStatus,
        reason: str,
        change: WorkerChange | None = None,
        *,
        fence: Fence | None = None,
    ) -> Worker:
        expected = (worker.pool_id, worker.worker_id, str(worker.status), worker.heartbeat_count)
        wanted = (str(to), int(to in MOVES[worker.status]), reason, *change_arguments(change))
        try:
            row = await self._database.run("worker_move", *fence_arguments(fence), *expected, *wanted)
        except IllegalMove:
            check_move(worker.worker_id, worker.status, to)
            raise
        return worker_of(worker.pool_id, row)

    async def set_targets(
        self, pool_id: PoolId, targets: Mapping[WorkerId, WorkerTarget], *, fence: Fence | None = None
    ) -> Sequence[Event]:
        events = [set_worker_target(worker_id, target) for worker_id, target in targets.items()]
        arguments: list[Argument] = []
        for event, (worker_id, target) in zip(events, targets.items(), strict=True):
            arguments += [worker_id, target.connections, dump(event.payload)]
        at, numbers = await self._database.run("worker_targets", *fence_arguments(fence), pool_id, *arguments)
        return [decoded_event(pool_id, event, number, instant(at)) for event, number in zip(events, numbers, strict=True)]

    async def ask_to_drain(
        self,
        pool_id: PoolId,
        workers: Sequence[WorkerId],
        reason: str,
        within: timedelta,
        *,
        fence: Fence | None = None,
    ) -> Sequence[WorkerId]:
        payload = dump(stop(reason, within).payload)
        asked = await self._database.run("worker_drain", *fence_arguments(fence), pool_id, to_us(within), payload, *workers)
        return [WorkerId(name.decode()) for name in asked]

    async def note_instance(
        self, pool_id: PoolId, worker_id: WorkerId, ref: str, meta: Mapping[str, Any], *, fence: Fence | None = None
    ) -> None:
        await self._database.run("worker_note", *fence_arguments(fence), pool_id, worker_id, ref, dump(meta))

    async def mark_reaped(self, pool_id: PoolId, worker_id: WorkerId, *, fence: Fence | None = None) -> None:
        await self._database.run("worker_reaped", *fence_arguments(fence), pool_id, worker_id)


def _by_slot(pool_id: PoolId, rows: Sequence[Sequence[bytes]]) -> list[Worker]:
    """Decode workers and sort them by slot (fixed index in the pool); the scripts return them in the order of creation."""
    return sorted((worker_of(pool_id, row) for row in rows), key=lambda worker: worker.slot)


def change_arguments(change: WorkerChange | None) -> tuple[Argument, ...]:
    if change is None:
        return None, None, None, None
    meta = None if change.meta is None else dump(change.meta)
    return change.exit_code, change.error, change.provider_ref, meta


def _row_arguments(worker: Worker) -> tuple[Argument, ...]:
    return (
        worker.pool_id,
        worker.worker_id,
        worker.slot,
        worker.provider,
        worker.provider_ref,
        dump(worker.capabilities),
        worker.target,
        dump(worker.meta),
    )
