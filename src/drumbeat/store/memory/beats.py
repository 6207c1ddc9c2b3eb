"""Beats in memory: the record of each pass of a controller's loop."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice

from drumbeat.core.beat import Beat, NewBeat
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.store.interface.record import MOST_SEARCHED
from drumbeat.store.memory.state import MemoryTable, operation, plain


class MemoryBeats(MemoryTable):
    @operation
    def append(self, pool_id: PoolId, beat: NewBeat, *, fence: Fence | None = None) -> Beat:
        self.state.admit(fence)
        rows = self.state.rows(pool_id)
        stored = Beat(
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
        rows.beats.append(stored)
        rows.last_beat = stored.n
        return stored

    @operation
    def list(self, pool_id: PoolId, *, since: datetime | None = None, after: int = 0, limit: int = 1000) -> Sequence[Beat]:
        return list(islice(self._later(pool_id, since, after), limit))

    @operation
    def with_actions(
        self, pool_id: PoolId, *, since: datetime | None = None, limit: int = 1000, among: int = MOST_SEARCHED
    ) -> Sequence[Beat]:
        rows = self.state.pools.get(pool_id)
        last = islice(reversed(rows.beats if rows else []), among)
        found = (beat for beat in last if beat.actions and (since is None or beat.at > since))
        return [replace(beat, view=None) for beat in islice(found, limit)][::-1]

    @operation
    def last(self, pool_id: PoolId, *, before: datetime | None = None, seen: bool = False) -> Beat | None:
        rows = self.state.pools.get(pool_id)
        newest_first = reversed(rows.beats if rows else [])
        matching = (beat for beat in newest_first if (before is None or beat.at <= before) and not (seen and beat.view is None))
        return next(matching, None)

    def _later(self, pool_id: PoolId, since: datetime | None, after: int) -> Iterator[Beat]:
        rows = self.state.pools.get(pool_id)
        return (beat for beat in (rows.beats if rows else []) if beat.n > after and (since is None or beat.at > since))
