"""A worker's writes about itself (join, heartbeat, move to another status), in Redis."""

from typing import Any

from drumbeat.core.errors import IllegalMove
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import MOVES, Worker, WorkerId, WorkerStatus, check_move
from drumbeat.store.interface import BATCH, Heartbeat, HeartbeatReply, JoinRequest, WorkerChange
from drumbeat.store.redis.database import Argument, RedisDatabase
from drumbeat.store.redis.record import KEPT
from drumbeat.store.redis.rows import dump, event_of, instant, moment, sample_arguments, worker_of
from drumbeat.store.redis.workers import change_arguments


class RedisMembership:
    def __init__(self, database: RedisDatabase) -> None:
        self._database = database

    async def join(self, joining: JoinRequest) -> Worker:
        row = await self._database.run(
            "member_join",
            joining.pool_id,
            joining.worker_id,
            joining.instance,
            joining.slot,
            joining.host,
            joining.pid,
            joining.provider,
            joining.provider_ref,
            dump(joining.capabilities),
        )
        return worker_of(joining.pool_id, row)

    async def beat(self, heartbeat: Heartbeat) -> HeartbeatReply:
        who = (heartbeat.pool_id, heartbeat.worker_id, heartbeat.instance)
        arguments = (heartbeat.read_to, BATCH, KEPT, *_report_arguments(heartbeat), *sample_arguments(heartbeat.sample))
        return _reply(heartbeat.pool_id, *await self._database.run("member_beat", *who, *arguments))

    async def move(
        self,
        pool_id: PoolId,
        worker_id: WorkerId,
        instance: str,
        to: WorkerStatus,
        reason: str,
        change: WorkerChange | None = None,
    ) -> Worker:
        allowed = f",{','.join(status for status, targets in MOVES.items() if to in targets)},"
        arguments = (pool_id, worker_id, instance, str(to), allowed, reason, *change_arguments(change))
        try:
            return worker_of(pool_id, await self._database.run("member_move", *arguments))
        except IllegalMove as exc:
            check_move(worker_id, WorkerStatus(str(exc)), to)
            raise


def _report_arguments(heartbeat: Heartbeat) -> tuple[Argument, ...]:
    return (
        heartbeat.phase,
        heartbeat.applied_target,
        heartbeat.active,
        heartbeat.operations,
        heartbeat.errors,
        heartbeat.error,
        heartbeat.cpu_percent,
        heartbeat.memory_percent,
        None if heartbeat.gpu is None else dump(heartbeat.gpu),
    )


def _reply(
    pool_id: PoolId,
    now: bytes,
    status: bytes,
    target: bytes | None,
    target_seq: bytes | None,
    drain_deadline: bytes | None,
    read_to: bytes,
    more: int,
    controller_until: bytes | None,
    entries: list[Any],
) -> HeartbeatReply:
    return HeartbeatReply(
        now=instant(now),
        events=[event_of(pool_id, entry) for entry in entries],
        read_to=int(read_to),
        more=bool(more),
        status=WorkerStatus(status.decode()),
        target=int(target or 0),
        target_seq=int(target_seq or 0),
        drain_deadline=moment(drain_deadline),
        run_status=None,
        run_phase=None,
        controller_until=moment(controller_until),
    )
