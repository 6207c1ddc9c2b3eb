"""How soon one thread of Python lets another go on: sooner while any engine drives, and as before once none does."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_INTERVAL = 0.0001  #: seconds; so that a driving thread never waits long for another to let go of Python

_lock = threading.Lock()
_before: list[float] = []  #: the interval found by the first of those who are inside, once for each of them


@contextmanager
def quick_switching() -> Iterator[None]:
    """For the whole process, as there is one interval for all its threads; any number of engines may be inside at once."""
    with _lock:
        _before.append(_before[0] if _before else sys.getswitchinterval())
        _set(min(_before[0], _INTERVAL))
    try:
        yield
    finally:
        with _lock:
            found = _before.pop()
            if not _before:
                _set(found)


def _set(seconds: float) -> None:
    sys.setswitchinterval(seconds + 5e-7)  # Python cuts it off to whole microseconds; it would not be what was found
