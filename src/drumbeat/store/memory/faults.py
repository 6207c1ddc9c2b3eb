"""Injected failures, with which tests simulate an unavailable store."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from drumbeat.core.errors import DrumbeatError, StoreUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    error: DrumbeatError
    kept: bool  #: the operation takes effect and only its reply is lost


class Faults:
    """The failures that tests have planned."""

    def __init__(self) -> None:
        self._outages = 0
        self._planned: deque[_Fault] = deque()

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Every operation inside the block fails before it changes anything."""
        self._outages += 1
        try:
            yield
        finally:
            self._outages -= 1

    def plan(self, times: int, error: DrumbeatError | None, *, kept: bool) -> None:
        """Make the next ``times`` operations fail; with ``kept`` they take effect and only their reply is lost."""
        failure = error or StoreUnavailable("the memory store was told to fail; try again")
        self._planned.extend(_Fault(error=failure, kept=kept) for _ in range(times))

    @contextmanager
    def around(self) -> Iterator[None]:
        """Run one operation and raise the failure that was planned for it."""
        if self._outages:
            raise StoreUnavailable("the memory store was made unavailable; leave the block that did it, or try again later")
        fault = self._planned.popleft() if self._planned else None
        if fault and not fault.kept:
            raise fault.error
        yield
        if fault:
            raise fault.error
