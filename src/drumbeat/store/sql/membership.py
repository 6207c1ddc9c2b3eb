"""The worker registry as workers use it: to join, to send heartbeats and to change their status."""

from typing import Any

from drumbeat.core.errors import WorkerGone
from drumbeat.core.pool import PoolId
from drumbeat.core.run import RunStatus
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus, check_move
from drumbeat.store.interface import BATCH, Heartbeat, HeartbeatReply, JoinRequest, WorkerChange
from drumbeat.store.sql.database import Database, Row, Script
from drumbeat.store.sql.events import append_events, moved
from drumbeat.store.sql.pools import no_pool
from drumbeat.store.sql.rows import dump, event_of, instant, load, moment, sample_values, worker_of
from drumbeat.store.sql.workers import NO_CHANGE, locked, move_row, note_numbers


class SqlMembership:
    """Writes workers' rows for the workers themselves: only the process that joined as a worker may write this worker's row."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def join(self, joining: JoinRequest) -> Worker:
        return await self._database.transact(_join(joining))

    async def beat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        rows = await self._database.write("worker_beat", _heartbeat_values(heartbeat))
        if not rows:
            await self._database.transact(_explain_gone(heartbeat.pool_id, heartbeat.worker_id, heartbeat.instance))
        return _reply_of(heartbeat, rows[0])

    async def move(
        self,
        pool_id: PoolId,
        worker_id: WorkerId,
        instance: str,
        to: WorkerStatus,
        reason: str,
        change: WorkerChange | None = None,
    ) -> Worker:
        return await self._database.transact(_move_self(pool_id, worker_id, instance, to, reason, change or NO_CHANGE))


def _join(joining: JoinRequest) -> Script[Worker]:
    existing = yield from locked(joining.pool_id, joining.worker_id)
    if existing is not None and existing.instance == joining.instance and existing.is_live:
        return existing
    rows = yield "join_worker", _joining_values(joining)
    if rows:
        worker = worker_of(rows[0])
        before = existing.status if existing else None
        yield from note_numbers(joining.pool_id, [] if existing else [joining.worker_id])
        yield from append_events(joining.pool_id, [moved(worker, before, WorkerStatus.STARTING, "joined", NO_CHANGE)])
        return worker
    if existing is None and not (yield "find_pool", {"pool_id": joining.pool_id}):
        raise no_pool(joining.pool_id)
    raise (yield from _gone(joining.pool_id, joining.worker_id, joining.instance))


def _joining_values(joining: JoinRequest) -> dict[str, Any]:
    return {
        "pool_id": joining.pool_id,
        "worker_id": joining.worker_id,
        "slot": joining.slot,
        "instance": joining.instance,
        "host": joining.host,
        "pid": joining.pid,
        "provider": joining.provider,
        "provider_ref": joining.provider_ref,
        "capabilities": dump(list(joining.capabilities)),
    }


def _gone(pool_id: PoolId, worker_id: WorkerId, instance: str) -> Script[WorkerGone]:
    """Return the error that says why this process is not allowed to write the worker's row."""
    row = yield from locked(pool_id, worker_id)
    if row is None:
        return WorkerGone(f"no such worker: {worker_id!r} in pool {pool_id!r}; it never joined, or was deleted")
    if not row.is_live:
        return WorkerGone(f"worker {worker_id} has ended as {row.status}; its writes are refused, end this process")
    return WorkerGone(f"worker {worker_id} is run by another process ({row.host} pid {row.pid}); end this one ({instance})")


def check_member(pool_id: PoolId, worker_id: WorkerId, instance: str) -> Script[Worker]:
    """Lock and return a worker's row. Raises WorkerGone unless the row is live and this process joined as the worker."""
    row = yield from locked(pool_id, worker_id)
    if row is None or not row.is_live or row.instance != instance:
        raise (yield from _gone(pool_id, worker_id, instance))
    return row


def _explain_gone(pool_id: PoolId, worker_id: WorkerId, instance: str) -> Script[None]:
    raise (yield from _gone(pool_id, worker_id, instance))


def _move_self(
    pool_id: PoolId, worker_id: WorkerId, instance: str, to: WorkerStatus, reason: str, change: WorkerChange
) -> Script[Worker]:
    row = yield from locked(pool_id, worker_id)
    if row is not None and row.instance == instance and row.status is to:
        return row
    row = yield from check_member(pool_id, worker_id, instance)
    check_move(worker_id, row.status, to)
    return (yield from move_row(row, to, reason, change))


def _heartbeat_values(beat: Heartbeat) -> dict[str, Any]:
    return {
        "pool_id": beat.pool_id,
        "worker_id": beat.worker_id,
        "instance": beat.instance,
        "read_to": beat.read_to,
        "phase": beat.phase,
        "applied_target": beat.applied_target,
        "active": beat.active,
        "operations": beat.operations,
        "errors": beat.errors,
        "error": beat.error,
        "cpu_percent": beat.cpu_percent,
        "memory_percent": beat.memory_percent,
        "gpu": None if beat.gpu is None else dump(dict(beat.gpu)),
    } | sample_values(beat.sample)


def _reply_of(beat: Heartbeat, row: Row) -> HeartbeatReply:
    found = [event_of(beat.pool_id, each) for each in load(row["events"]) or ()]
    more = len(found) > BATCH
    return HeartbeatReply(
        now=instant(row["now"]),
        events=found[:BATCH],
        read_to=found[BATCH - 1].sequence_id if more else max(row["newest"], beat.read_to),
        more=more,
        status=WorkerStatus(row["status"]),
        target=row["target"],
        target_seq=row["target_seq"],
        drain_deadline=moment(row["drain_deadline"]),
        run_status=None if row["run_status"] is None else RunStatus(row["run_status"]),
        run_phase=row["run_phase"],
        controller_until=moment(row["controller_until"]),
    )
