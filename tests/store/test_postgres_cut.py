"""A connection that dies while it is used is the store's absence, whatever the driver calls it."""

import asyncio
from datetime import timedelta
from typing import Any, NoReturn

import asyncpg
import pytest
from asyncpg.transaction import Transaction

from drumbeat.core.errors import StoreUnavailable
from drumbeat.core.job import NewJob
from drumbeat.store import open_store
from drumbeat.store.contract.given import new_pool
from drumbeat.store.contract.given_jobs import pushed
from drumbeat.store.sql import postgres_notify


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


@pytest.mark.parametrize("error", [asyncpg.ConnectionDoesNotExistError, asyncpg.InterfaceError, TimeoutError])
async def test_a_wait_goes_on_by_polling_if_the_driver_cannot_listen(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    monkeypatch.setattr(postgres_notify, "RETRY_AFTER", 0.0)

    async def add_listener(*words: object) -> NoReturn:
        raise error("connection was closed in the middle of operation")

    async with asyncio.timeout(60), open_store(postgres_url, create=True) as store, asyncio.TaskGroup() as group:
        made = await store.pools.create(new_pool())
        with monkeypatch.context() as broken:
            broken.setattr(asyncpg.Connection, "add_listener", add_listener)
            assert not await store.queue.wait(made.pool_id, timedelta(milliseconds=100))
            waiting = group.create_task(store.queue.wait(made.pool_id, timedelta(seconds=50)))
            await asyncio.sleep(0.1)
            await pushed(store, made, 1)
            assert await waiting

        notifier = store.database.notifier  # type: ignore[attr-defined]
        async with notifier.listening(made.pool_id) as subscription:
            assert subscription.live
