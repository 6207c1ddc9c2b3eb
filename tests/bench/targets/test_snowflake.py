"""Snowflake as a target keeps the contract, through the real connector against the emulator."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from drumbeat.bench.targets.contract import TargetContract
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.snowflake import SnowflakeTarget


class TestSnowflake(TargetContract):
    """Hybrid tables, which enforce their keys as the contract expects."""

    slow_sql = "SELECT SYSTEM$WAIT(60)"
    timeout = timedelta(seconds=120)

    @pytest.fixture
    async def target(self, snowflake_url: str) -> AsyncIterator[Target]:
        async with SnowflakeTarget(snowflake_url + "&tables=hybrid") as target:
            yield target
