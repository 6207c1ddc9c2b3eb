"""Cursors that say where the next claim starts to read the job queue, so that it skips jobs that were claimed before.

PostgreSQL keeps the index entry of a claimed job until vacuum removes it, and one long transaction delays vacuum. A claim
that starts at the first entry reads more and more dead entries. So after a claim that got all the jobs it asked for, the
next claim starts where that claim ended. The cursor expires soon; then a claim reads the whole queue and finds released jobs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from drumbeat.store.sql.database import Row

LEAST, MOST = 0.5, 10.0  #: shortest and longest lifetime of a cursor, in seconds
WORTH = 20.0  #: a cursor's lifetime is this many times the duration of a claim that read the whole queue

_LOWEST = -(2**31)


#: the pool, the capabilities, the job types and the excluded job types that a cursor is for
CursorKey = tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCursor:
    """The position in the job queue at which the next claim starts to read: when it was set, no ready job came before it."""

    priority: int = _LOWEST
    number: int = 0
    until: float = 0.0  #: when the cursor expires, by the event loop's clock

    def holds(self, now: float) -> bool:
        return now < self.until


START = ClaimCursor()


def advanced(cursor: ClaimCursor, taken: Sequence[Row], began: float, now: float) -> ClaimCursor:
    """Return the cursor for the next claim, after a claim that started at ``cursor`` and got all jobs it asked for."""
    priority = min(row["priority"] for row in taken)
    number = max(row["seq"] for row in taken if row["priority"] == priority) + 1
    if cursor is START:
        until = now + min(max(LEAST, WORTH * (now - began)), MOST)
        return ClaimCursor(priority=priority, number=number, until=until)
    if priority > cursor.priority:
        return cursor
    return ClaimCursor(priority=cursor.priority, number=max(number, cursor.number), until=cursor.until)
