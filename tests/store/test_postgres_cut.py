"""A connection that dies while it is used is the store's absence, whatever the driver calls it."""

from typing import Any, NoReturn

import asyncpg
import pytest
from asyncpg.transaction import Transaction

from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.job import NewJob
from drumbeat.store import open_store
from drumbeat.store.contract.given import new_pool


@pytest.mark.parametrize("error", [asyncpg.InternalClientError, asyncpg.InterfaceError, ConnectionResetError])
async def test_a_driver_at_a_loss_means_that_the_store_is_away(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    async with open_store(postgres_url, create=True) as store:
        pool = await store.pools.create(new_pool())

        async def start(self: Any) -> NoReturn:
            raise error("cannot switch to state 15; another operation (2) is in progress")

        with monkeypatch.context() as broken:
            broken.setattr(Transaction, "start", start)
            with pytest.raises(StoreUnavailable, match="state 15"):
                await store.queue.push(pool.pool_id, [NewJob(payload=1, unique_key="k")])

        assert len(await store.queue.push(pool.pool_id, [NewJob(payload=1, unique_key="k")])) == 1
