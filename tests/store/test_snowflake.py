"""Snowflake keeps the store's promises, through the real connector and an emulator of the account."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from drumbeat.store import Store, open_store
from drumbeat.store.contract import Elapse, PoolContract, StoreContract
from servers.snowflake import SnowflakeServer
from store.timeshift import shift_statements


@pytest.fixture(scope="module")
def snowflake(_shared_snowflake: SnowflakeServer) -> SnowflakeServer:
    """The shared emulator, for as long as the store of this module is open."""
    return _shared_snowflake


@pytest.fixture(scope="module")
def database(snowflake: SnowflakeServer) -> str:
    return snowflake.new_database()


@pytest.fixture(scope="module")
async def store(database: str) -> AsyncIterator[Store]:
    async with open_store(database, create=True) as store:
        yield store


@pytest.fixture
def elapse(snowflake: SnowflakeServer, database: str) -> Elapse:
    name = database.partition("/TEST_")[2].partition("/")[0]

    def shift(passed: timedelta) -> None:
        with snowflake.connect(f"TEST_{name}") as connection:
            for statement in shift_statements(passed):
                connection.cursor().execute(statement.replace(" at = at ", ' "AT" = "AT" '))

    async def pass_time(passed: timedelta) -> None:
        await asyncio.to_thread(shift, passed)

    return pass_time


class TestSnowflakeStore(StoreContract):
    """Every promise, on hybrid tables."""


class TestSnowflakePool(PoolContract):
    """Every promise about jobs."""
