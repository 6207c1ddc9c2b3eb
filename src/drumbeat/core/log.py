"""A log line that is kept in the store."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId

LONGEST_MESSAGE = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLog:
    """A line before it is stored."""

    level: str
    logger: str
    message: str
    age: timedelta = timedelta()  #: time between logging and storing it
    worker_id: WorkerId | None = None
    details: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log(NewLog):
    """One row of ``logs``."""

    pool_id: PoolId
    log_id: int
    at: datetime
