"""Failures that tests inject to simulate an unavailable store."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from drumbeat.core.errors import DrumbeatError, StoreUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    error: DrumbeatError
    kept: bool  #: whether the operation does its work before it raises


class Faults:
    """Decides which operations of a memory store fail, as a test has planned."""

    def __init__(self) -> None:
        self._outages = 0
        self._planned: deque[_Fault] = deque()

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Make every operation inside the block raise StoreUnavailable before it changes anything."""
        self._outages += 1
        try:
            yield
        finally:
            self._outages -= 1

    def plan(self, times: int, error: DrumbeatError | None, *, kept: bool) -> None:
        """Make the next ``times`` operations raise ``error``; with ``kept`` they do their work before they raise."""
        failure = error or StoreUnavailable("a test made this operation of the memory store fail (fail_next); try again")
        self._planned.extend(_Fault(error=failure, kept=kept) for _ in range(times))

    @contextmanager
    def around(self) -> Iterator[None]:
        """Run one operation (the block), and raise the failure that a test has planned for it, if any."""
        if self._outages:
            raise StoreUnavailable("a test made the memory store unavailable; leave its ``with store.unavailable()`` block")
        fault = self._planned.popleft() if self._planned else None
        if fault and not fault.kept:
            raise fault.error
        yield
        if fault:
            raise fault.error
