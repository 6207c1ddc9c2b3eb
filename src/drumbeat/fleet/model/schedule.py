"""Schedules: minimum and maximum numbers of workers that apply at certain hours."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from drumbeat.core.errors import InvalidSettings
from drumbeat.fleet.model.bounds import MOST_WORKERS, number

_FURTHEST = timedelta(hours=14)  #: the largest offset from UTC in use


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Minimum and maximum of workers at certain hours. A schedule over midnight belongs to the day on which it begins."""

    begin: int  #: minutes after midnight
    end: int  #: minutes after midnight; equal to ``begin``: the whole day
    days: tuple[int, ...] = ()  #: days of the week, 0 is Monday; empty: every day
    utc_offset: timedelta = timedelta()
    min_workers: int | None = None
    max_workers: int | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.begin < 1440 and 0 <= self.end <= 1440 and all(0 <= day <= 6 for day in self.days)):
            raise InvalidSettings(f"expected begin from 0 to 1439, end from 0 to 1440 (minutes), days from 0 to 6, got {self}")
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
    """Read a schedule from its JSON form. Raises InvalidSettings for a value out of range, KeyError for a missing field, and
    TypeError, ValueError or OverflowError for a value that is not a number."""
    return Schedule(
        begin=number("begin", given["begin"], integer=True),
        end=number("end", given["end"], integer=True),
        days=tuple(number("days", day, integer=True) for day in given.get("days", ())),
        utc_offset=timedelta(seconds=float(given.get("utc_offset_seconds", 0))),
        min_workers=_count("min_workers", given.get("min_workers")),
        max_workers=_count("max_workers", given.get("max_workers")),
    )


def _count(name: str, value: Any) -> int | None:
    return None if value is None else number(f"a schedule's {name}", value, integer=True)
