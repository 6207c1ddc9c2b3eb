"""Beats, in memory."""

from collections.abc import Sequence
from datetime import datetime

from drumbeat.core.beat import Beat, NewBeat
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.store.memory.state import Table, operation, plain


class MemoryBeats(Table):
    @operation
    def append(self, pool_id: PoolId, beat: NewBeat, *, fence: Fence | None = None) -> Beat:
        self.state.admit(fence)
        rows = self.state.rows(pool_id)
        kept = Beat(
            pool_id=pool_id,
            n=rows.last_beat + 1,
            at=self.state.now(),
            owner=beat.owner,
            epoch=beat.epoch,
            view=plain(beat.view),
            actions=plain(beat.actions),
            why_not=beat.why_not,
            error=beat.error,
            duration=beat.duration,
            summary=plain(beat.summary),
        )
        rows.beats.append(kept)
        rows.last_beat = kept.n
        return kept

    @operation
    def list(self, pool_id: PoolId, *, since: datetime | None = None, after: int = 0, limit: int = 1000) -> Sequence[Beat]:
        rows = self.state.pools.get(pool_id)
        beats = rows.beats if rows else []
        return [beat for beat in beats if beat.n > after and (since is None or beat.at > since)][:limit]

    @operation
    def last(self, pool_id: PoolId) -> Beat | None:
        rows = self.state.pools.get(pool_id)
        return rows.beats[-1] if rows and rows.beats else None
