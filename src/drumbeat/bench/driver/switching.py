"""Shortens Python's thread switch interval while an engine runs, so that operations are sent on time."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_INTERVAL = 0.0001  #: seconds; short, because a driving thread that waits for the GIL sends operations late

_lock = threading.Lock()
_originals: list[float] = []  #: the original interval, repeated for each running engine


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Shorten Python's thread switch interval while a ``with`` block runs. When no such block runs any more, the original
    interval is set again."""
    with _lock:
        _originals.append(_originals[0] if _originals else sys.getswitchinterval())
        _set(min(_originals[0], _INTERVAL))
    try:
        yield
    finally:
        with _lock:
            original = _originals.pop()
            if not _originals:
                _set(original)


def _set(seconds: float) -> None:
    sys.setswitchinterval(seconds + 5e-7)  # Python truncates to whole microseconds; this rounds instead
