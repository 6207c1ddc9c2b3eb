"""Shortens Python's thread switch interval while an engine runs."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_INTERVAL = 0.0001  #: seconds; a driving thread must not wait long for the GIL

_lock = threading.Lock()
_originals: list[float] = []  #: the original interval, once for each running engine


@contextmanager
def quick_switching() -> Iterator[None]:
    """Shorten the interval for the whole process; the last of several engines to leave restores it."""
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
