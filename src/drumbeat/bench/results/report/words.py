"""Formats figures as short texts with units, the same in every report format."""

from datetime import UTC, datetime, timedelta

from drumbeat.bench.model.words import NOTHING as NOTHING
from drumbeat.bench.model.words import ms as ms
from drumbeat.bench.model.words import number as number
from drumbeat.bench.model.words import told_apart as told_apart


def percent(share: float | None, digits: int = 3) -> str:
    return NOTHING if share is None else f"{number(share * 100, digits)} %"


def signed(share: float | None) -> str:
    """A relative change."""
    return NOTHING if share is None else f"{share * 100:+.1f} %"


def points(value: float | None) -> str:
    """A change that is given in percent."""
    return NOTHING if value is None else f"{value:+.1f} %"


def when(moment: datetime | None) -> str:
    return NOTHING if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def lasting(length: timedelta | None) -> str:
    """A length of time: 12 s, 3 min 05 s, 2 h 04 min."""
    if length is None:
        return NOTHING
    seconds = round(length.total_seconds())
    if seconds < 60:
        return f"{number(length.total_seconds())} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def at(offset: float) -> str:
    """Time since the start of the run: +1:05."""
    seconds = round(abs(offset))
    return f"{'-' if offset < -0.5 else '+'}{seconds // 60}:{seconds % 60:02d}"


def money(value: float | None, currency: str) -> str:
    return NOTHING if value is None else f"{number(value, 4)} {currency}"
