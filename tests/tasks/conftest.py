"""Stores for tasks: DRUMBEAT_STORE names a new one for each test, and the connections of tasks are closed after it."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drumbeat.settings import STORE_VARIABLE
from drumbeat.tasks.queue import StoreQueue, queues
from servers.redis import RedisServer


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def every_store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreQueue]:
    """The queue of tasks in a new store of each kind."""
    yield from _used(address(request, tmp_path), monkeypatch)


@pytest.fixture
def sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreQueue]:
    """The queue of tasks in a new SQLite store."""
    yield from _used(f"sqlite:///{tmp_path}/jobs.db", monkeypatch)


def _used(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreQueue]:
    monkeypatch.setenv(STORE_VARIABLE, url)
    yield queues.find_store(None)
    queues.close()


def address(request: pytest.FixtureRequest, folder: Path) -> str:
    """Return the URL of a new store of the kind that the fixture is parametrized with."""
    match request.param:
        case "memory":
            return "memory:"
        case "sqlite":
            return f"sqlite:///{folder}/jobs.db"
        case "postgres":
            new_database: Callable[[], str] = request.getfixturevalue("new_database")
            return new_database()
        case _:
            server: RedisServer = request.getfixturevalue("redis")
            return server.new_database()


@pytest.fixture
def write_module(tmp_path: Path) -> Iterator[Callable[[str, str], Path]]:
    """A function that writes a module into the test's folder. After the test, Python has forgotten it."""
    written: list[str] = []

    def write(name: str, text: str) -> Path:
        file = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        written.append(name.partition(".")[0])
        return file

    yield write
    for name in [each for each in sys.modules if each.partition(".")[0] in written]:
        del sys.modules[name]
