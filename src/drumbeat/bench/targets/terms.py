"""Shared by all targets: error classes, the epoch, and the error for a missing table."""

from datetime import UTC, datetime

from drumbeat.bench.driver.records import FAILED, LOST, OK, TIMED_OUT
from drumbeat.bench.model import ErrorClass
from drumbeat.core.errors import InvalidInput

EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)  #: UTC, without a time zone

CLASSES = {
    OK: None,
    FAILED: ErrorClass.DATABASE_ERROR,
    TIMED_OUT: ErrorClass.QUERY_TIMEOUT,
    LOST: ErrorClass.CONNECTION,
}  #: for errors whose database code says no more


def no_table(location: str, table: str) -> InvalidInput:
    return InvalidInput(f"{location} has no table {table!r}; create it, or run: drumbeat bench prepare")
