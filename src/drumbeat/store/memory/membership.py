"""A worker's writes about itself (join, heartbeat, move to another status), in memory."""

from dataclasses import replace
from datetime import datetime

from drumbeat.core.errors import WorkerGone
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker, WorkerId, WorkerStatus
from drumbeat.store.interface import BATCH, Heartbeat, HeartbeatReply, JoinRequest, WorkerChange
from drumbeat.store.memory.events import events_after
from drumbeat.store.memory.moves import NOTHING_ELSE, keep, move, moved_event
from drumbeat.store.memory.samples import keep_sample
from drumbeat.store.memory.state import MemoryTable, another_holds, closed, operation, plain


class MemoryMembership(MemoryTable):
    @operation
    def join(self, joining: JoinRequest) -> Worker:
        row = self.state.rows(joining.pool_id).workers.get(joining.worker_id)
        now = self.state.now()
        if row is None:
            worker = _joined(_row_for(joining, now), joining, now)
        elif row.status is WorkerStatus.SPAWNING:
            worker = _joined(row, joining, now)
        elif not row.is_live:
            raise WorkerGone(closed(row))
        elif row.instance != joining.instance:
            raise WorkerGone(another_holds(row))
        else:
            return row
        return keep(self.state, worker, moved_event(worker, row.status if row else None, "joined"))

    @operation
    def beat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        row = self.state.own(heartbeat.pool_id, heartbeat.worker_id, heartbeat.instance)
        after = _after_heartbeat(row, heartbeat, self.state.now())
        if heartbeat.sample is not None:
            keep_sample(self.state, row, heartbeat.sample)
        return self._reply(keep(self.state, after), heartbeat.read_to)

    @operation
    def move(
        self,
        pool_id: PoolId,
        worker_id: WorkerId,
        instance: str,
        to: WorkerStatus,
        reason: str,
        change: WorkerChange | None = None,
    ) -> Worker:
        rows = self.state.pools.get(pool_id)
        row = rows.workers.get(worker_id) if rows else None
        if row and row.instance == instance and row.status is to:
            return row
        return move(self.state, self.state.own(pool_id, worker_id, instance), to, reason, change or NOTHING_ELSE)

    def _reply(self, worker: Worker, read_to: int) -> HeartbeatReply:
        rows = self.state.rows(worker.pool_id)
        controller = self.state.leases.get(worker.pool_id)
        events = [
            event for event in events_after(rows, read_to, len(rows.events)) if event.is_for(worker.worker_id, worker.slot)
        ]
        more = len(events) > BATCH
        return HeartbeatReply(
            now=self.state.now(),
            events=events[:BATCH],
            read_to=events[BATCH - 1].sequence_id if more else max(read_to, rows.last_event),
            more=more,
            status=worker.status,
            target=worker.target,
            target_seq=worker.target_seq,
            drain_deadline=worker.drain_deadline,
            run_status=rows.run.status if rows.run else None,
            run_phase=rows.run.phase if rows.run else None,
            controller_until=controller.lease.expires_at if controller else None,
        )


def _row_for(joining: JoinRequest, now: datetime) -> Worker:
    return Worker(pool_id=joining.pool_id, worker_id=joining.worker_id, slot=joining.slot, created_at=now)


def _joined(row: Worker, joining: JoinRequest, now: datetime) -> Worker:
    return replace(
        row,
        slot=joining.slot,
        status=WorkerStatus.STARTING,
        instance=joining.instance,
        host=joining.host,
        pid=joining.pid,
        provider=joining.provider or row.provider,
        provider_ref=joining.provider_ref or row.provider_ref,
        capabilities=joining.capabilities,
        started_at=now,
        heartbeat_at=now,
        heartbeat_count=1,
    )


def _after_heartbeat(row: Worker, heartbeat: Heartbeat, now: datetime) -> Worker:
    return replace(
        row,
        heartbeat_at=now,
        heartbeat_count=row.heartbeat_count + 1,
        phase=heartbeat.phase,
        applied_target=heartbeat.applied_target,
        active=heartbeat.active,
        operations=heartbeat.operations,
        errors=heartbeat.errors,
        error=row.error if heartbeat.error is None else heartbeat.error,
        cpu_percent=heartbeat.cpu_percent,
        memory_percent=heartbeat.memory_percent,
        gpu=plain(heartbeat.gpu),
    )
