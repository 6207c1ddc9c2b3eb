"""A pool of jobs in memory: with a worker whose store and clock a test holds, or as users test their handlers."""

from collections.abc import AsyncIterator

import pytest

import drumbeat.testing
from drumbeat.testing import TestPool
from pool.working import Shop


@pytest.fixture
async def shop() -> Shop:
    return await Shop().opened()


@pytest.fixture
async def pool() -> AsyncIterator[TestPool]:
    async with drumbeat.testing.pool() as made:
        yield made
