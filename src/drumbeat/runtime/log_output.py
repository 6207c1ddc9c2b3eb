"""Sends log lines to standard error while a command runs."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TALKATIVE = frozenset({"asyncssh", "httpx"})
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


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
    handler.setFormatter(logging.Formatter(_FORMAT))
    handler.addFilter(_is_worth_a_line)
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield
    finally:
        root.setLevel(before)
        root.removeHandler(handler)


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether to show a log line: all except those that libraries log at INFO for each request or connection."""
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] not in _TALKATIVE
