"""A store of each kind, for what a pool does the same on all of them."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from drumbeat.core.clock import SystemClock
from drumbeat.pool.service import Pool
from drumbeat.store import Store, open_store
from drumbeat.store.memory import MemoryStore
from servers.redis import RedisServer


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A new store of each kind."""
    if request.param == "memory":
        async with MemoryStore(SystemClock()) as store:
            yield store
        return
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/drumbeat.db"
    elif request.param == "postgres":
        new_database: Callable[[], str] = request.getfixturevalue("new_database")
        url = new_database()
    else:
        server: RedisServer = request.getfixturevalue("redis")
        url = server.new_database()
    async with open_store(url, create=True) as opened:
        yield opened


@pytest.fixture
def any_pool(any_store: Store) -> Pool:
    """The pool ``mail`` on each kind of store."""
    return Pool(any_store, SystemClock(), "mail", "me")
