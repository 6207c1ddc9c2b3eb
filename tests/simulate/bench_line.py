"""The line from one orchestrator to its store and its provider: it counts what is asked, and can be cut at any call."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, cast

from drumbeat.core.errors import SpawnAmbiguous, StoreUnavailable
from drumbeat.spawn.interface import Spawner
from drumbeat.store.interface import Store


class Crash(BaseException):
    """The orchestrator is gone: nothing of it may catch this."""


async def dies(call: str) -> None:
    """Kill -9, for ``Line.befall``."""
    raise Crash(call)


async def fails(call: str) -> None:
    """The call gives no answer, for ``Line.befall``."""
    if call.startswith("spawner"):
        raise SpawnAmbiguous(f"{call}: the provider gave no answer")
    raise StoreUnavailable(f"{call}: the store gave no answer")


class Line:
    """Everything one orchestrator asks, in order, and what befalls it at one of these calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._number: int | None = None
        self._after = False
        self._what: Callable[[str], Awaitable[None]] = fails

    def befall(self, number: int, what: Callable[[str], Awaitable[None]], *, after: bool) -> None:
        """Let something happen at a call, counted from now: before it takes effect, or after and before it is answered."""
        self._number, self._what, self._after = len(self.calls) + number, what, after

    async def carry(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        now = len(self.calls) == self._number
        self.calls.append(name)
        if now and not self._after:
            await self._what(name)
        answer = await call()
        if now and self._after:
            await self._what(name)
        return answer

    def store(self, store: Store) -> Store:
        return cast("Store", _Tapped(store, self, "store"))

    def spawner(self, spawner: Spawner) -> Spawner:
        return cast("Spawner", _Tapped(spawner, self, "spawner"))


class _Tapped:
    """Something whose operations go through the line."""

    def __init__(self, thing: object, line: Line, name: str) -> None:
        self._thing = thing
        self._line = line
        self._name = name

    def __getattr__(self, part: str) -> Any:
        found = getattr(self._thing, part)
        name = f"{self._name}.{part}"
        if part == "traits":
            return found
        if not inspect.iscoroutinefunction(found):
            return _Tapped(found, self._line, name)
        return lambda *args, **kwargs: self._line.carry(name, lambda: found(*args, **kwargs))
