"""Repeats a read of the store until the store answers, so that an outage does not count as a failure of a job."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from drumbeat.core.clock import Clock
from drumbeat.core.errors import StoreUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSES = (timedelta(milliseconds=100), timedelta(seconds=5))  #: first and longest pause before a store error is retried


async def until_answered(clock: Clock, read: Callable[[], Awaitable[T]], what: str) -> T:
    """Return what ``read`` returns; repeat it after StoreUnavailable. ``what`` names the read in the log."""
    pause = PAUSES[0]
    while True:
        try:
            return await read()
        except StoreUnavailable as exc:
            log.warning("failed to read %s: %s; retrying", what, exc)
        await clock.sleep(pause)
        pause = min(pause * 2, PAUSES[1])
