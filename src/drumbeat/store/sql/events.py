"""SQL table ``events``: one numbered log of events per pool."""

from collections.abc import Mapping, Sequence
from typing import Any

from drumbeat.core.event import Event, EventType, NewEvent
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.store.interface import BATCH, WorkerChange
from drumbeat.store.sql.database import Database, Rows, Script, Values, check_fence
from drumbeat.store.sql.pools import no_pool
from drumbeat.store.sql.rows import dump, event_json, event_of


class SqlEvents:
    """Appends events to a pool's log and reads them in the order of their numbers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, pool_id: PoolId, events: Sequence[NewEvent], *, fence: Fence | None = None) -> Sequence[Event]:
        if fence is not None or not events:
            return await self._database.transact(_append(pool_id, events, fence))
        listed = [event_json(event) for event in events]
        return _numbered(pool_id, listed, await self._database.write("append_events", _values(pool_id, listed)))

    async def read(self, pool_id: PoolId, after: int, limit: int = BATCH) -> Sequence[Event]:
        rows = await self._database.read("read_events", {"pool_id": pool_id, "after": after, "limit": limit})
        return [event_of(pool_id, row) for row in rows]


def append_events(pool_id: PoolId, events: Sequence[NewEvent]) -> Script[list[Event]]:
    """Number events and store them in the pool's log. This is part of larger scripts, which call it with ``yield from``."""
    if not events:
        return []
    listed = [event_json(event) for event in events]
    return _numbered(pool_id, listed, (yield "append_events", _values(pool_id, listed)))


def _values(pool_id: PoolId, listed: Sequence[Mapping[str, Any]]) -> Values:
    return {"pool_id": pool_id, "count": len(listed), "events": dump(listed)}


def _numbered(pool_id: PoolId, listed: Sequence[Mapping[str, Any]], rows: Rows) -> list[Event]:
    if not rows:
        raise no_pool(pool_id)
    first, now = rows[0]["first"], rows[0]["now"]
    return [event_of(pool_id, {**each, "sequence_id": first + n, "created_at": now}) for n, each in enumerate(listed)]


def _append(pool_id: PoolId, events: Sequence[NewEvent], fence: Fence | None) -> Script[list[Event]]:
    yield from check_fence(fence)
    return (yield from append_events(pool_id, events))


def moved(worker: Worker, before: WorkerStatus | None, to: WorkerStatus, reason: str, change: WorkerChange) -> NewEvent:
    payload = {
        "worker_id": worker.worker_id,
        "worker_group_id": worker.slot,
        "from": before,
        "to": to,
        "reason": reason,
        "exit_code": change.exit_code,
        "error": change.error,
    }
    given = {name: value for name, value in payload.items() if value is not None or name == "from"}
    return NewEvent(type=EventType.WORKER_MOVED, payload=given)
