"""An event loop whose time leaps to the next thing that is due, so that hours pass in a moment and always in the same way."""

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class _Leaping(selectors.DefaultSelector):
    """Never waits: what would be waited for is passed over."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits for something that will never come")
        self.passed += max(timeout, 0.0)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop without sockets, on a time of its own."""

    def __init__(self) -> None:
        self._leaping = _Leaping()
        super().__init__(self._leaping)

    def time(self) -> float:
        return self._leaping.passed


class VirtualClock:
    """The loop's time as a Clock; ``skew`` is how wrong it is, and may jump."""

    def __init__(self, begins: datetime = EPOCH) -> None:
        self.begins = begins
        self.skew = timedelta()

    def now(self) -> datetime:
        return self.begins + self.elapsed() + self.skew

    def elapsed(self) -> timedelta:
        return timedelta(microseconds=round(asyncio.get_running_loop().time() * 1_000_000))

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(max(duration.total_seconds(), 0.0))


def run_virtually(story: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a virtual time of its own, from the beginning of 2026."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story)
