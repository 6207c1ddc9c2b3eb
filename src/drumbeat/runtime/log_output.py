"""Log lines on standard error, for as long as a command runs."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@contextmanager
def logging_to_stderr(level: int, handler: logging.Handler | None = None) -> Iterator[None]:
    """Inside the block every logger writes to standard error, from ``level`` up; after it logging is as it was.

    A program that has set up its logging keeps it: then nothing is changed at all. ``handler`` writes instead of a plain one.
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
    """httpx tells of each request at INFO."""
    return record.levelno >= logging.WARNING or record.name.partition(".")[0] != "httpx"
