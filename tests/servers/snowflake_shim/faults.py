"""Faults on command: a statement that matches fails, waits, is answered wrongly, or is executed and not answered."""

import re
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, kw_only=True)
class Fault:
    """What happens to the next ``times`` statements whose text or tag matches a pattern."""

    match: str
    action: str  #: fail, delay, lie, unavailable (before it runs), unanswered (after it ran)
    times: int = 1
    number: int = 300002
    sqlstate: str = "XX000"
    message: str = "injected failure"
    seconds: float = 0.0
    columns: tuple[str, ...] = ()  #: of a lie
    rows: tuple[Any, ...] = ()  #: of a lie
    status: int = 503
    queued_overload_ms: int | None = None
    queued_provisioning_ms: int | None = None

    def matches(self, sql: str, tag: str) -> bool:
        return self.times != 0 and bool(
            re.search(self.match, sql, re.IGNORECASE | re.DOTALL) or (tag and re.search(self.match, tag))
        )


class Faults:
    def __init__(self) -> None:
        self.waiting: list[Fault] = []

    def add(self, given: dict[str, Any]) -> None:
        columns, rows = tuple(given.pop("columns", ())), tuple(given.pop("rows", ()))
        self.waiting.append(Fault(**given, columns=columns, rows=rows))

    def take(self, sql: str, tag: str) -> Fault | None:
        """The first fault that matches; each is used up after its number of times (below 0: never)."""
        for fault in self.waiting:
            if fault.matches(sql, tag):
                fault.times -= 1
                self.waiting = [each for each in self.waiting if each.times != 0]
                return fault
        return None
