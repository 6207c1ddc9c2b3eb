"""Tells which ended workers still count towards the cost of the current month."""

from datetime import UTC, datetime, timedelta

_LONGEST_BILLING_UNIT = timedelta(days=1)  #: the longest billing unit of any provider


def billed_since(now: datetime) -> datetime:
    """Return the earliest end time of workers that may still cost money in the month of ``now`` (UTC)."""
    month = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return month - _LONGEST_BILLING_UNIT
