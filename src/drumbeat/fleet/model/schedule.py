"""Other bounds at certain hours."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from drumbeat.core.errors import InvalidSettings
from drumbeat.fleet.model.bounds import MOST_WORKERS, number

_FURTHEST = timedelta(hours=14)  #: no place is further from UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Other bounds at certain hours. Over midnight it belongs to the day on which it begins."""

    begin: int  #: minutes after midnight
    end: int  #: minutes after midnight; equal to ``begin``: the whole day
    days: tuple[int, ...] = ()  #: 0 is Monday; none named: every day
    utc_offset: timedelta = timedelta()
    min_workers: int | None = None
    max_workers: int | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.begin < 1440 and 0 <= self.end <= 1440 and all(0 <= day <= 6 for day in self.days)):
            raise InvalidSettings(f"expected minutes 0 to 1440 and days 0 to 6 in a schedule, got {self}")
        if abs(self.utc_offset) > _FURTHEST:
            raise InvalidSettings(f"expected a schedule's utc_offset between -14:00 and +14:00, got {self.utc_offset}")
        for name in ("min_workers", "max_workers"):
            if not 0 <= (getattr(self, name) or 0) <= MOST_WORKERS:
                raise InvalidSettings(f"expected a schedule's {name} from 0 to {MOST_WORKERS}, got {getattr(self, name)}")
        if self.min_workers is not None and self.max_workers is not None and self.min_workers > self.max_workers:
            raise InvalidSettings(
                f"expected min_workers ≤ max_workers in a schedule, got {self.min_workers} and {self.max_workers}"
            )


def read_schedule(given: Mapping[str, Any]) -> Schedule:
    """A schedule from its JSON. Raises InvalidSettings, and what its parts raise that are no numbers."""
    return Schedule(
        begin=number("begin", given["begin"], whole=True),
        end=number("end", given["end"], whole=True),
        days=tuple(number("days", day, whole=True) for day in given.get("days", ())),
        utc_offset=timedelta(seconds=float(given.get("utc_offset_seconds", 0))),
        min_workers=_count("min_workers", given.get("min_workers")),
        max_workers=_count("max_workers", given.get("max_workers")),
    )


def _count(name: str, value: Any) -> int | None:
    return None if value is None else number(f"a schedule's {name}", value, whole=True)
