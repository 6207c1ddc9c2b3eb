"""PostgreSQL behind PgBouncer in transaction mode keeps the store's promises too."""

from collections.abc import AsyncIterator

import pytest

from drumbeat.store import Store, open_store
from drumbeat.store.contract import Elapse, PoolContract, StoreContract
from servers.pgbouncer import PgBouncer
from servers.postgres import PostgresServer
from store.timeshift import elapse_through


@pytest.fixture(scope="module")
def database(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture(scope="module")
async def store(database: str, pgbouncer: PgBouncer) -> AsyncIterator[Store]:
    async with open_store(f"{pgbouncer.url(database)}?connections=8", create=True) as store:
        yield store


@pytest.fixture
def elapse(database: str) -> Elapse:
    return elapse_through(database)


class TestPostgresStoreBehindPgBouncer(StoreContract):
    """Every promise, with a pooler in between."""


class TestPostgresPoolBehindPgBouncer(PoolContract):
    """Every promise about jobs."""
