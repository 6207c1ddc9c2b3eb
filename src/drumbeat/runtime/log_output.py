"""Sends log lines to standard error while a command runs."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

_TALKATIVE = frozenset({"asyncssh", "httpx"})
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def stderr_handler(*, as_json: bool, only: logging.Filter | None = None) -> logging.Handler:
    """Return a handler that writes to standard error, as text or as one JSON object a line. ``only`` is a filter, such as
    JobLogFilter, which adds a job to each record: JSON shows all added fields, text only the ``job_id``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else _TextFormatter(_FORMAT))
    if only is not None:
        handler.addFilter(only)
    return handler


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line of JSON: time, level, logger, message, exception, and the fields of ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS and name not in fields}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=repr, ensure_ascii=False)


class _TextFormatter(logging.Formatter):
    """Formats a log record as text, with the id of the job that it belongs to."""

    def format(self, record: logging.LogRecord) -> str:
        first, newline, rest = super().format(record).partition("\n")
        job_id = getattr(record, "job_id", None)
        return first + (f" [job {job_id}]" if job_id is not None else "") + newline + rest


@contextmanager
def logging_to_stderr(level: int, handler: logging.Handler | None = None) -> Iterator[None]:
    """Inside the block, log lines from ``level`` up go to standard error; afterwards logging is as before.

    If the program has already set up logging, nothing is changed. ``handler`` replaces the default stderr handler.
    """
    root = logging.getLogger()
    if root.handlers:
        yield
        return
    handler, before = handler or logging.StreamHandler(sys.stderr), root.level
    if handler.formatter is None:
        handler.setFormatter(logging.Formatter(_FORMAT))
    handler.addFilter(_is_worth_a_line)
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield
    finally:
        root.setLevel(before)
        root.removeHandler(handler)


def stderr_format() -> tuple[bool, int] | None:
    """Return how a ``stderr_handler`` writes the log lines of this process: whether as JSON, and from which level up.

    None: there is no such handler; the program has set up logging by itself, or not at all.
    """
    root = logging.getLogger()
    for handler in root.handlers:
        if isinstance(handler.formatter, JsonFormatter | _TextFormatter):
            return isinstance(handler.formatter, JsonFormatter), root.level
    return None


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether to show a log line: all except those that libraries log at INFO for each request or connection."""
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] not in _TALKATIVE
