"""PostgreSQL as a target keeps the contract, and tells of itself."""

from collections.abc import AsyncIterator

import pytest

from drumbeat.bench.targets.contract import TargetContract
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.postgres import PostgresTarget
from drumbeat.core.errors import InvalidSettings


class TestPostgres(TargetContract):
    slow_sql = "SELECT pg_sleep(60)"

    @pytest.fixture
    async def target(self, postgres_url: str) -> AsyncIterator[Target]:
        async with PostgresTarget(postgres_url) as target:
            yield target


async def test_the_server_says_how_many_sessions_there_are_and_what_was_done(postgres_url: str) -> None:
    async with PostgresTarget(postgres_url) as target, PostgresTarget(postgres_url):
        before = await target.counters()
        await target.define(["CREATE TABLE t (k int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)"])
        signals = await target.signals()
        after = await target.counters()

    assert signals is not None
    assert signals.sessions == 1
    assert signals.lock_waits == 0
    assert after.keys() == before.keys()
    assert "database.xact_commit" in after


async def test_a_server_that_is_not_there_is_said() -> None:
    with pytest.raises(InvalidSettings, match=r"127\.0\.0\.1:1/") as caught:
        async with PostgresTarget("postgresql://u:secret@127.0.0.1:1/x"):
            pass
    assert "secret" not in str(caught.value)
