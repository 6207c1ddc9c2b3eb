"""Which ended workers still count for money: the running month's, with what a provider rounds up."""

from datetime import UTC, datetime, timedelta

_LONGEST_GRANULE = timedelta(days=1)  #: the longest time that a provider bills at once


def billed_since(now: datetime) -> datetime:
    """Whoever was gone before then costs nothing in the month of ``now``, by UTC."""
    month = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return month - _LONGEST_GRANULE
