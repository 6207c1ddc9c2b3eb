"""A log line that is stored in the database."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId

LONGEST_MESSAGE = 20_000
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def log_rank(level: str) -> int:
    """Return the severity of a log level, from 0 for DEBUG; an unknown level counts as DEBUG."""
    return LEVELS.index(level.upper()) if level.upper() in LEVELS else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLog:
    """A log line before it is stored."""

    level: str
    logger: str
    message: str
    age: timedelta = timedelta()  #: time between logging and storing it
    worker_id: WorkerId | None = None
    details: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Log(NewLog):
    """A stored log line: one row of ``logs``."""

    pool_id: PoolId
    log_id: int
    at: datetime
