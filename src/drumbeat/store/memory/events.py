"""Events in memory: each pool's numbered log of instructions and records."""

from bisect import bisect_right
from collections.abc import Sequence

from drumbeat.core.event import Event, NewEvent
from drumbeat.core.lease import Fence
from drumbeat.core.pool import PoolId
from drumbeat.store.interface import BATCH
from drumbeat.store.memory.state import MemoryTable, PoolRows, operation


class MemoryEvents(MemoryTable):
    @operation
    def append(self, pool_id: PoolId, events: Sequence[NewEvent], *, fence: Fence | None = None) -> Sequence[Event]:
        self.state.admit(fence)
        return self.state.append_events(self.state.rows(pool_id), events)

    @operation
    def read(self, pool_id: PoolId, after: int, limit: int = BATCH) -> Sequence[Event]:
        rows = self.state.pools.get(pool_id)
        return events_after(rows, after, limit) if rows else []


def events_after(rows: PoolRows, after: int, limit: int) -> Sequence[Event]:
    """Return the pool's events with numbers above ``after``, at most ``limit``, oldest first."""
    first = bisect_right(rows.events, after, key=lambda event: event.sequence_id)
    return rows.events[first : first + limit]
