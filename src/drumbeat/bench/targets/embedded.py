"""What targets that are a file have in common: a path that must make sense, and a thread for the connection of their own."""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from drumbeat.bench.driver.driver_thread import Lane
from drumbeat.core.errors import InvalidSettings

T = TypeVar("T")


class _Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)


class OwnConnection(Generic[C]):
    """A target's own connection, made when first used. Until something is defined, a file that is not there stays so."""

    def __init__(self, path: Path, connect: Callable[[], C]) -> None:
        self._path = path
        self._connect = connect
        self._lane: Lane | None = None
        self._connection: C | None = None

    def open(self) -> None:
        self._lane = Lane("drumbeat-target")

    async def close(self) -> None:
        lane, self._lane = self._lane, None
        connection, self._connection = self._connection, None
        if lane is not None:
            if connection is not None:
                await lane.run(connection.close)
            lane.end()

    async def run(self, work: Callable[[C], T], *, create: bool = False) -> T:
        """Do something with the connection, in its thread. Raises InvalidSettings when there is no file and none is made."""
        if self._lane is None:
            raise InvalidSettings("this target is not open; use it as: async with open_target(url) as target")
        return await self._lane.run(lambda: work(self._opened(create)))

    def _opened(self, create: bool) -> C:
        if self._connection is None:
            check_path(self._path, create=create)
            self._connection = self._connect()
        return self._connection


def check_path(path: Path, *, create: bool) -> None:
    """Raise InvalidSettings unless there is such a file, or there may be."""
    if path.is_dir():
        raise InvalidSettings(f"expected a database file at {path}, got a folder; name a file in it")
    if create and not path.parent.is_dir():
        raise InvalidSettings(f"expected a folder at {path.parent} to keep a database in; make it first")
    if not create and not path.exists():
        raise InvalidSettings(f"there is no database at {path}; make it, or run: drumbeat bench prepare")
