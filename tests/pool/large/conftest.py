"""A pool in memory whose large payloads and results are files in the folder ``place``."""

from pathlib import Path

import pytest

from drumbeat.core.clock import ManualClock
from drumbeat.pool.large.files import FilePlace
from drumbeat.pool.large.values import LargeValues
from drumbeat.pool.plugins import PoolPlugins
from drumbeat.store.memory import MemoryStore
from drumbeat.testing import TestPool


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "large"


@pytest.fixture
async def values(place: Path, clock: ManualClock) -> LargeValues:
    return LargeValues(place=FilePlace(place), store=MemoryStore(clock), clock=clock, max_inline=1024)


@pytest.fixture
async def pool(values: LargeValues, clock: ManualClock) -> TestPool:
    opened = TestPool(values.store, clock, "papers", PoolPlugins(large=values))
    await opened.create()
    return opened
