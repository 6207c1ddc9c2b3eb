"""Snowflake keeps the store's promises, through the real connector: on an emulator, or on a real account."""

import os
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

import snowflake_account
from drumbeat.core.store_url import PASSWORD_VARIABLE
from drumbeat.store import open_store
from drumbeat.store.contract import Elapse, PoolContract, StoreContract
from drumbeat.store.contract.job_steps import JobStepsContract
from drumbeat.store.contract.workflows import WorkflowContract
from drumbeat.store.sql.snowflake import SnowflakeDatabase
from drumbeat.store.sql.store import SqlStore
from store.timeshift import shift_statements


@pytest.fixture(scope="module")
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a store for all tests of this module."""
    account = os.environ.get(snowflake_account.URL_VARIABLE)
    if account is None:
        yield request.getfixturevalue("_shared_snowflake").new_database()
        return
    with snowflake_account.new_schema(account) as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv(PASSWORD_VARIABLE, os.environ.get("DRUMBEAT_TARGET_PASSWORD", ""))
        yield url


@pytest.fixture(scope="module")
async def store(database: str) -> AsyncIterator[SqlStore]:
    async with open_store(database, create=True) as store:
        assert isinstance(store, SqlStore)
        yield store


@pytest.fixture
def elapse(store: SqlStore) -> Elapse:
    opened = store.database
    assert isinstance(opened, SnowflakeDatabase)

    async def pass_time(passed: timedelta) -> None:
        def shift(session: Any) -> None:
            for statement in shift_statements(passed):
                session.cursor().execute(statement.replace(" at = at ", ' "AT" = "AT" '))

        await opened.sessions.run(shift)

    return pass_time


class TestSnowflakeStore(StoreContract):
    """Every promise, on hybrid tables."""


class TestSnowflakePool(PoolContract):
    """Every promise about jobs."""


class TestSnowflakeWorkflows(WorkflowContract):
    """Every promise about jobs that wait for other jobs."""


class TestSnowflakeJobSteps(JobStepsContract):
    """Every promise about the steps of jobs."""
