"""Shared code for databases in a file (SQLite, DuckDB): path checks, and a connection in its own thread."""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from drumbeat.bench.driver.driver_thread import CallThread
from drumbeat.core.errors import InvalidSettings

T = TypeVar("T")


class _Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closable)


class SetupConnection(Generic[C]):
    """A connection for setup and checks (a load opens its own connections). It is opened at its first use."""

    def __init__(self, path: Path, connect: Callable[[], C]) -> None:
        self._path = path
        self._connect = connect
        self._lane: CallThread | None = None
        self._connection: C | None = None

    def open(self) -> None:
        self._lane = CallThread("drumbeat-target")

    async def close(self) -> None:
        lane, self._lane = self._lane, None
        connection, self._connection = self._connection, None
        if lane is not None:
            if connection is not None:
                await lane.run(connection.close)
            lane.end()

    async def run(self, work: Callable[[C], T], *, create: bool = False) -> T:
        """Call ``work(connection)`` in the connection's thread. Without ``create``, a missing file raises InvalidSettings."""
        if self._lane is None:
            raise InvalidSettings("this target is not open; use it as: async with open_target(url) as target")
        return await self._lane.run(lambda: work(self._opened(create)))

    def _opened(self, create: bool) -> C:
        if self._connection is None:
            check_path(self._path, create=create)
            self._connection = self._connect()
        return self._connection


def check_path(path: Path, *, create: bool) -> None:
    """Raise InvalidSettings unless the file exists or, with ``create``, can be created."""
    if path.is_dir():
        raise InvalidSettings(f"expected a database file at {path}, got a folder; name a file in it")
    if create and not path.parent.is_dir():
        raise InvalidSettings(f"expected a folder at {path.parent} for the database file; create it first")
    if not create and not path.exists():
        raise InvalidSettings(f"no database at {path}; create it, or run: drumbeat bench prepare")
