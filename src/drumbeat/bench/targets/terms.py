"""Code shared by the databases under test: error classes, conversion of timestamps, and the error for a missing table."""

from datetime import UTC, datetime, timedelta

from drumbeat.bench.driver.records import FAILED, LOST, OK, TIMED_OUT
from drumbeat.bench.model import ErrorClass
from drumbeat.core.errors import InvalidInput

EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)  #: 1970-01-01 in UTC, as a datetime without time zone

CLASSES = {
    OK: None,
    FAILED: ErrorClass.DATABASE_ERROR,
    TIMED_OUT: ErrorClass.QUERY_TIMEOUT,
    LOST: ErrorClass.CONNECTION,
}  #: the error class of each outcome, for errors without a more specific code


def timestamp(microseconds: int) -> datetime:
    """Return the time that is ``microseconds`` after 1970-01-01, in UTC and without a time zone."""
    return EPOCH + timedelta(microseconds=microseconds)


def no_table(location: str, table: str) -> InvalidInput:
    return InvalidInput(f"{location} has no table {table!r}; create it, or run: drumbeat bench prepare")
