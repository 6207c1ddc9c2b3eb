"""SQL table ``beats``: one row for each beat (one pass of a control loop)."""

from collections.abc import Sequence
from datetime import datetime

from drumbeat.core.beat import Beat, NewBeat
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.store.interface.record import MOST_SEARCHED
from drumbeat.store.sql.database import Database, Script, check_fence
from drumbeat.store.sql.pools import no_pool
from drumbeat.store.sql.rows import at_us, beat_of, dump, to_us


class SqlBeats:
    """Reads and writes the table ``beats``: what a control loop observed, decided and did in each pass."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, pool_id: PoolId, beat: NewBeat, *, fence: Fence | None = None) -> Beat:
        return await self._database.transact(_append_beat(pool_id, beat, fence))

    async def list(
        self, pool_id: PoolId, *, since: datetime | None = None, after: int = 0, limit: int = 1000
    ) -> Sequence[Beat]:
        values = {"pool_id": pool_id, "since": at_us(since), "after": after, "limit": limit}
        return [beat_of(row) for row in await self._database.read("list_beats", values)]

    async def with_actions(
        self, pool_id: PoolId, *, since: datetime | None = None, limit: int = 1000, among: int = MOST_SEARCHED
    ) -> Sequence[Beat]:
        values = {"pool_id": pool_id, "since": at_us(since), "limit": limit, "among": among}
        return [beat_of(row) for row in await self._database.read("list_beats_with_actions", values)][::-1]

    async def last(self, pool_id: PoolId, *, before: datetime | None = None, seen: bool = False) -> Beat | None:
        values = {"pool_id": pool_id, "before": at_us(before), "seen": int(seen)}
        rows = await self._database.read("last_beat", values)
        return beat_of(rows[0]) if rows else None


def _append_beat(pool_id: PoolId, beat: NewBeat, fence: Fence | None) -> Script[Beat]:
    yield from check_fence(fence)
    numbered = yield "take_beat_number", {"pool_id": pool_id}
    if not numbered:
        raise no_pool(pool_id)
    rows = yield (
        "add_beat",
        {
            "pool_id": pool_id,
            "n": numbered[0]["n"],
            "owner": beat.owner,
            "epoch": beat.epoch,
            "view": None if beat.view is None else dump(beat.view),
            "actions": dump(list(beat.actions)),
            "why_not": beat.why_not,
            "error": beat.error,
            "duration_us": to_us(beat.duration),
            "summary": dump(dict(beat.summary)),
        },
    )
    return beat_of(rows[0])
