"""Keeps track of connections by number (slot): which are open, which are missing, and which are too many."""

import math
from collections import Counter
from dataclasses import dataclass, field

from drumbeat.bench.driver.session import PostgresSession

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0  #: seconds before a lost connection is opened again
_MOST_DOUBLINGS = 10  #: more would not lengthen the wait, and 2^1024 is too large for a float


@dataclass(slots=True)
class ConnectionSlots:
    """The connections that are open, opening and closing. Each has a slot number, counted from 0."""

    wanted: int = 0
    open: dict[int, PostgresSession] = field(default_factory=dict)
    opening: set[int] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)
    tries: Counter[int] = field(default_factory=Counter)  #: failures in a row, by slot
    retry_at: dict[int, float] = field(default_factory=dict)  #: when a slot that failed may be opened again (monotonic seconds)
    next_retry: float = math.inf  #: the earliest ``retry_at`` of the missing slots that had to wait at the last check
    changed: bool = True  #: whether ``missing`` or ``surplus`` may have changed since the last check

    def is_check_due(self, now: float) -> bool:
        """Whether ``missing`` or ``surplus`` may give another answer than at the last check."""
        return self.changed or now >= self.next_retry

    def missing(self, now: float) -> list[int]:
        """Return the wanted slots that are neither open nor opening, except those that failed and must wait for longer."""
        closed = [slot for slot in range(self.wanted) if slot not in self.open and slot not in self.opening]
        self.next_retry = min((at for slot in closed if (at := self.retry_at.get(slot, 0.0)) > now), default=math.inf)
        return [slot for slot in closed if self.retry_at.get(slot, 0.0) <= now]

    def note_failure(self, slot: int, now: float) -> None:
        """Let a slot wait before it is opened again, twice as long after each failure in a row."""
        self.tries[slot] += 1
        doublings = min(self.tries[slot] - 1, _MOST_DOUBLINGS)
        self.retry_at[slot] = now + min(_FIRST_WAIT * 2**doublings, _LONGEST_WAIT)

    def note_opened(self, slot: int, session: PostgresSession) -> None:
        self.opening.discard(slot)
        self.tries.pop(slot, None)
        self.retry_at.pop(slot, None)
        self.open[slot] = session
        self.changed = True

    def surplus(self) -> list[int]:
        return [slot for slot in self.open if slot >= self.wanted and slot not in self.leaving]
