"""End-to-end tests run on each durable store."""

from collections.abc import Callable
from pathlib import Path

import pytest

from drumbeat.store import open_store
from servers.redis import RedisServer

#: For tests of processes rather than of the store: make test runs them on SQLite, make soak on PostgreSQL too.
postgres_in_soak = pytest.mark.parametrize("url", ["sqlite", pytest.param("postgres", marks=pytest.mark.soak)], indirect=True)


@pytest.fixture(params=["sqlite", "postgres"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new store of each kind, with its tables."""
    if request.param == "sqlite":
        address = f"sqlite:///{tmp_path}/drumbeat.db"
    else:
        new_database: Callable[[], str] = request.getfixturevalue("new_database")
        address = new_database()
    async with open_store(address, create=True):
        pass
    return address


@pytest.fixture(params=["sqlite", "postgres", "redis"])
async def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new store of each kind that other processes see, those without tables too."""
    if request.param == "sqlite":
        address = f"sqlite:///{tmp_path}/drumbeat.db"
    elif request.param == "postgres":
        new_database: Callable[[], str] = request.getfixturevalue("new_database")
        address = new_database()
    else:
        server: RedisServer = request.getfixturevalue("redis")
        address = server.new_database()
    async with open_store(address, create=True):
        pass
    return address
