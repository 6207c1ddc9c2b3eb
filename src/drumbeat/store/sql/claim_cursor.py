"""Where a busy claimer goes on reading the queue, so that it does not step over everything it has claimed before.

PostgreSQL keeps the entry of a claimed row in the index of ready jobs until it is vacuumed, and one long transaction anywhere
holds that up. Whoever begins at the first entry each time reads ever more dead ones. So a claimer that got all it asked for
begins its next claim where that one ended, and looks at the whole again soon: a job given back in between is seen then.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from drumbeat.store.sql.database import Row

LEAST, MOST = 0.5, 10.0  #: seconds until the whole is looked at again
WORTH = 20.0  #: and at least so many times as long as that look took

_LOWEST = -(2**31)


Asking = tuple[str, tuple[str, ...], tuple[str, ...]]  #: a pool, and which of its jobs: a floor holds for these only


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCursor:
    """Nothing of this priority or a higher one was ready before this number."""

    priority: int = _LOWEST
    number: int = 0
    until: float = 0.0  #: by the loop's clock

    def holds(self, now: float) -> bool:
        return now < self.until


GROUND = ClaimCursor()


def risen(floor: ClaimCursor, taken: Sequence[Row], began: float, now: float) -> ClaimCursor:
    """The floor after a claim that got all it asked for, from this one."""
    priority = min(row["priority"] for row in taken)
    number = max(row["seq"] for row in taken if row["priority"] == priority) + 1
    if floor is GROUND:
        until = now + min(max(LEAST, WORTH * (now - began)), MOST)
        return ClaimCursor(priority=priority, number=number, until=until)
    if priority > floor.priority:
        return floor
    return ClaimCursor(priority=floor.priority, number=max(number, floor.number), until=floor.until)
