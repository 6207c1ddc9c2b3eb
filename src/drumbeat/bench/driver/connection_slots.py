"""Keeps track of connections by number (slot): which are open, which are missing, and which are too many."""

from collections import Counter
from dataclasses import dataclass, field

from drumbeat.bench.driver.session import PostgresSession


@dataclass(slots=True)
class ConnectionSlots:
    """The connections that are open, opening and closing. Each has a slot number, counted from 0."""

    wanted: int = 0
    open: dict[int, PostgresSession] = field(default_factory=dict)
    opening: set[int] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)
    tries: Counter[int] = field(default_factory=Counter)
    changed: bool = True  #: whether ``missing`` or ``surplus`` may have changed since the last check

    def missing(self) -> list[int]:
        return [slot for slot in range(self.wanted) if slot not in self.open and slot not in self.opening]

    def surplus(self) -> list[int]:
        return [slot for slot in self.open if slot >= self.wanted and slot not in self.leaving]
