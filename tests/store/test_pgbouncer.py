"""PostgreSQL behind PgBouncer in transaction mode keeps the store's promises too."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from drumbeat.core.pool import PoolRow
from drumbeat.store import Store, open_store
from drumbeat.store.contract import Elapse, PoolContract, StoreContract
from drumbeat.store.contract.given import MINUTE, W1, active
from drumbeat.store.contract.given_jobs import claiming
from servers.pgbouncer import PgBouncer
from servers.postgres import PostgresServer
from store.timeshift import elapse_through
from thorough import THOROUGH


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


if THOROUGH:

    class TestPostgresStoreBehindPgBouncer(StoreContract):
        """Every promise, with a pooler in between. Only `make soak` runs it; `make test` runs those about jobs."""


class TestPostgresPoolBehindPgBouncer(PoolContract):
    """Every promise about jobs; only news that are of no job are not heard, for nobody can listen behind it."""

    async def test_a_drain_request_ends_a_wait(self, store: Store, pool: PoolRow) -> None:
        await active(store, pool)
        await store.queue.claim(claiming(pool))
        await store.workers.ask_to_drain(pool.pool_id, [W1], "scale down", MINUTE)

        assert not await store.queue.wait(pool.pool_id, timedelta())
        assert (await store.workers.get(pool.pool_id, W1)).drain_deadline is not None
