"""A controller's reads and writes about workers, in memory."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from drumbeat.core.errors import AlreadyExists, NotFound, StaleWrite
from drumbeat.core.event import Event, WorkerTarget, set_worker_target, stop
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.store.interface import UNREAPED, WorkerChange
from drumbeat.store.memory.moves import NOTHING_ELSE, keep, move, moved_event
from drumbeat.store.memory.state import MemoryTable, PoolRows, operation, plain


class MemoryWorkers(MemoryTable):
    @operation
    def add(self, workers: Sequence[Worker], *, fence: Fence | None = None) -> None:
        self.state.admit(fence)
        made: dict[tuple[PoolId, WorkerId], Worker] = {}
        for worker in workers:
            key = (worker.pool_id, worker.worker_id)
            if key in made or worker.worker_id in self.state.rows(worker.pool_id).workers:
                raise AlreadyExists(f"worker {worker.worker_id!r} of pool {worker.pool_id!r} already exists; choose another id")
            made[key] = _new_row(worker, self.state.now())
        for worker in made.values():
            keep(self.state, worker, moved_event(worker, None, "asked for"))

    @operation
    def get(self, pool_id: PoolId, worker_id: WorkerId) -> Worker:
        return self.state.worker(pool_id, worker_id)

    @operation
    def list(self, pool_id: PoolId, *, live: bool = False, gone_since: datetime | None = None) -> Sequence[Worker]:
        rows = self.state.pools.get(pool_id)
        names = (rows.live if live else rows.workers) if rows else ()
        found = (rows.workers[name] for name in names) if rows else ()
        return sorted((each for each in found if not _is_gone(each, gone_since)), key=lambda worker: worker.slot)

    @operation
    def list_unreaped(self, pool_id: PoolId, *, named: Collection[WorkerId] = ()) -> Sequence[Worker]:
        rows = self.state.pools.get(pool_id)
        if rows is None:
            return []
        names = dict.fromkeys((*rows.live, *islice(rows.unreaped, UNREAPED), *named))
        found = [rows.workers[name] for name in names if name in rows.workers]
        return sorted(found, key=lambda worker: (worker.slot, worker.created_at))

    @operation
    def list_ended(self, pool_id: PoolId, limit: int) -> Sequence[Worker]:
        rows = self.state.pools.get(pool_id)
        return [rows.workers[name] for name in islice(reversed(rows.ended), limit)] if rows else []

    @operation
    def move(
        self,
        worker: Worker,
        to: WorkerStatus,
        reason: str,
        change: WorkerChange | None = None,
        *,
        fence: Fence | None = None,
    ) -> Worker:
        self.state.admit(fence)
        row = self.state.worker(worker.pool_id, worker.worker_id)
        if (row.status, row.heartbeat_count) != (worker.status, worker.heartbeat_count):
            raise StaleWrite(
                f"worker {worker.worker_id} changed: expected {worker.status} with {worker.heartbeat_count} heartbeats, "
                f"got {row.status} with {row.heartbeat_count}; read it and decide again"
            )
        return move(self.state, row, to, reason, change or NOTHING_ELSE)

    @operation
    def set_targets(
        self, pool_id: PoolId, targets: Mapping[WorkerId, WorkerTarget], *, fence: Fence | None = None
    ) -> Sequence[Event]:
        self.state.admit(fence)
        rows = self.state.rows(pool_id)
        _expect_live(rows, targets)
        events = self.state.append_events(rows, [set_worker_target(worker_id, target) for worker_id, target in targets.items()])
        for event, (worker_id, target) in zip(events, targets.items(), strict=True):
            row = rows.workers[worker_id]
            rows.keep_worker(replace(row, target=target.connections, target_seq=event.sequence_id))
        return events

    @operation
    def ask_to_drain(
        self,
        pool_id: PoolId,
        workers: Sequence[WorkerId],
        reason: str,
        within: timedelta,
        *,
        fence: Fence | None = None,
    ) -> Sequence[WorkerId]:
        self.state.admit(fence)
        deadline = self.state.now() + within
        asked = self._undrained(pool_id, workers)
        for worker in asked:
            keep(self.state, replace(worker, drain_deadline=deadline), stop(reason, within, worker.worker_id))
        if asked:
            self.state.subscribers.notify(pool_id)
        return [worker.worker_id for worker in asked]

    @operation
    def note_instance(
        self, pool_id: PoolId, worker_id: WorkerId, ref: str, meta: Mapping[str, Any], *, fence: Fence | None = None
    ) -> None:
        self.state.admit(fence)
        row = self.state.worker(pool_id, worker_id)
        keep(self.state, replace(row, provider_ref=ref, meta={**row.meta, **plain(meta)}))

    @operation
    def mark_reaped(self, pool_id: PoolId, worker_id: WorkerId, *, fence: Fence | None = None) -> None:
        self.state.admit(fence)
        row = self.state.worker(pool_id, worker_id)
        if row.is_live:
            raise StaleWrite(f"worker {worker_id}: expected an ended worker, got {row.status}; end it first")
        keep(self.state, replace(row, reaped_at=row.reaped_at or self.state.now()))

    def _undrained(self, pool_id: PoolId, workers: Sequence[WorkerId]) -> Sequence[Worker]:
        """Return the named workers (each once) that are live and not yet asked to drain."""
        rows = self.state.pools.get(pool_id)
        known = [rows.workers[name] for name in dict.fromkeys(workers) if name in rows.workers] if rows else []
        return [worker for worker in known if worker.is_live and worker.drain_deadline is None]


def _is_gone(worker: Worker, gone_since: datetime | None) -> bool:
    return gone_since is not None and worker.reaped_at is not None and worker.reaped_at < gone_since


def _new_row(worker: Worker, now: datetime) -> Worker:
    return Worker(
        pool_id=worker.pool_id,
        worker_id=worker.worker_id,
        slot=worker.slot,
        provider=worker.provider,
        provider_ref=worker.provider_ref,
        capabilities=worker.capabilities,
        target=worker.target,
        created_at=now,
        meta=plain(worker.meta),
    )


def _expect_live(rows: PoolRows, targets: Mapping[WorkerId, WorkerTarget]) -> None:
    for worker_id in targets:
        row = rows.workers.get(worker_id)
        if row is None or not row.is_live:
            got = row.status if row else "not in the store"
            raise NotFound(f"cannot set the target of worker {worker_id!r} of pool {rows.pool.pool_id!r}: the worker is {got}")
