"""Formats figures as short texts with units, for all report formats. A missing figure (None) becomes a dash."""

from datetime import UTC, datetime, timedelta

from drumbeat.bench.model.words import (
    NOTHING as NOTHING,
    and_failed_connects as and_failed_connects,
    ms as ms,
    number as number,
    texts_that_differ as texts_that_differ,
)


def percent(share: float | None, digits: int = 3) -> str:
    return NOTHING if share is None else f"{number(share * 100, digits)} %"


def signed(share: float | None) -> str:
    """Format a change given as a share: 0.05 becomes ``+5.0 %``."""
    return NOTHING if share is None else f"{share * 100:+.1f} %"


def points(value: float | None) -> str:
    """Format a change given in percent: 5 becomes ``+5.0 %``."""
    return NOTHING if value is None else f"{value:+.1f} %"


def when(moment: datetime | None) -> str:
    return NOTHING if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(length: timedelta | None) -> str:
    """Format a duration: ``12 s``, ``3 min 05 s``, ``2 h 04 min``."""
    if length is None:
        return NOTHING
    seconds = round(length.total_seconds())
    if seconds < 60:
        return f"{number(length.total_seconds())} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def at(offset: float) -> str:
    """Format seconds since the start of the run: 65 becomes ``+1:05``."""
    seconds = round(abs(offset))
    return f"{'-' if offset < -0.5 else '+'}{seconds // 60}:{seconds % 60:02d}"
