"""Places for connections, numbered from 0: which are taken, and what must happen for them to be as many as wanted."""

from collections import Counter
from dataclasses import dataclass, field

from drumbeat.bench.driver.session import PostgresSession


@dataclass(slots=True)
class ConnectionSlots:
    """Which connections there are, and which are on their way."""

    wanted: int = 0
    open: dict[int, PostgresSession] = field(default_factory=dict)
    opening: set[int] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)
    tries: Counter[int] = field(default_factory=Counter)
    changed: bool = True  #: since they were last made to be as wanted

    def missing(self) -> list[int]:
        return [place for place in range(self.wanted) if place not in self.open and place not in self.opening]

    def surplus(self) -> list[int]:
        return [place for place in self.open if place >= self.wanted and place not in self.leaving]
