"""Where the next claim starts to read the queue, so that it does not read past all jobs that were claimed before.

PostgreSQL keeps the entry of a claimed row in the index of ready jobs until vacuum removes it, and one long transaction
delays vacuum. A claim that starts at the first entry each time reads more and more dead entries. So after a claim that got
all it asked for, the next one starts where it ended. After a short time a claim reads the whole queue again, and finds jobs
that were released in between.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from drumbeat.store.sql.database import Row

LEAST, MOST = 0.5, 10.0  #: bounds of the seconds until the whole queue is read again
WORTH = 20.0  #: within these bounds, this many times as long as reading it took

_LOWEST = -(2**31)


CursorKey = tuple[str, tuple[str, ...], tuple[str, ...]]  #: pool, capabilities and types that a cursor is valid for


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCursor:
    """No job of this priority or higher with a lower number was ready."""

    priority: int = _LOWEST
    number: int = 0
    until: float = 0.0  #: when it expires, by the event loop's clock

    def holds(self, now: float) -> bool:
        return now < self.until


START = ClaimCursor()


def advanced(cursor: ClaimCursor, taken: Sequence[Row], began: float, now: float) -> ClaimCursor:
    """The cursor after a claim that started at ``cursor`` and got all it asked for."""
    priority = min(row["priority"] for row in taken)
    number = max(row["seq"] for row in taken if row["priority"] == priority) + 1
    if cursor is START:
        until = now + min(max(LEAST, WORTH * (now - began)), MOST)
        return ClaimCursor(priority=priority, number=number, until=until)
    if priority > cursor.priority:
        return cursor
    return ClaimCursor(priority=cursor.priority, number=max(number, cursor.number), until=cursor.until)
