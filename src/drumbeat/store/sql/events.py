"""One ordered log per pool."""

from collections.abc import Sequence

from drumbeat.core.event import Event, EventType, NewEvent
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import Worker, WorkerStatus
from drumbeat.store.interface import BATCH, Change
from drumbeat.store.sql.database import Database, Script, check_fence
from drumbeat.store.sql.pools import no_pool
from drumbeat.store.sql.rows import dump, event_json, event_of


class SqlEvents:
    """One ordered log per pool."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, pool_id: PoolId, events: Sequence[NewEvent], *, fence: Fence | None = None) -> Sequence[Event]:
        return await self._database.transact(_append(pool_id, events, fence))

    async def read(self, pool_id: PoolId, after: int, limit: int = BATCH) -> Sequence[Event]:
        rows = await self._database.read("read_events", {"pool_id": pool_id, "after": after, "limit": limit})
        return [event_of(pool_id, row) for row in rows]


def append_events(pool_id: PoolId, events: Sequence[NewEvent]) -> Script[list[Event]]:
    """Number and keep events, as part of a larger script."""
    if not events:
        return []
    numbered = yield "take_event_numbers", {"pool_id": pool_id, "count": len(events)}
    if not numbered:
        raise no_pool(pool_id)
    first, now = numbered[0]["first"], numbered[0]["now"]
    listed = [event_json(event) for event in events]
    yield "add_events", {"pool_id": pool_id, "first": first, "now": now, "events": dump(listed)}
    return [event_of(pool_id, each | {"sequence_id": first + n, "created_at": now}) for n, each in enumerate(listed)]


def _append(pool_id: PoolId, events: Sequence[NewEvent], fence: Fence | None) -> Script[list[Event]]:
    yield from check_fence(fence)
    return (yield from append_events(pool_id, events))


def moved(worker: Worker, before: WorkerStatus | None, to: WorkerStatus, reason: str, change: Change) -> NewEvent:
    payload = {
        "worker_id": worker.worker_id,
        "worker_group_id": worker.slot,
        "from": before,
        "to": to,
        "reason": reason,
        "exit_code": change.exit_code,
        "error": change.error,
    }
    kept = {name: value for name, value in payload.items() if value is not None or name == "from"}
    return NewEvent(type=EventType.WORKER_MOVED, payload=kept)
