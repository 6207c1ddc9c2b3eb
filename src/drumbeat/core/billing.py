"""Tells which ended workers still count towards the cost of the current month."""

from datetime import UTC, datetime, timedelta

_LONGEST_BILLING_UNIT = timedelta(days=1)  #: the longest billing unit of any provider


def billed_since(now: datetime) -> datetime:
    """Return the month's start (UTC) minus the longest billing unit: workers that ended earlier cost nothing this month."""
    month = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return month - _LONGEST_BILLING_UNIT
