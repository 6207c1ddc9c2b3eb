"""DuckDB as a target keeps the contract."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drumbeat.bench.targets.contract import TargetContract
from drumbeat.bench.targets.duckdb import DuckdbTarget
from drumbeat.bench.targets.interface import Target


class TestDuckdb(TargetContract):
    slow_sql = "SELECT COUNT(*) FROM range(1000000) a, range(1000000) b WHERE (a.range + b.range) % 7 = 3"

    @pytest.fixture
    async def target(self, tmp_path: Path) -> AsyncIterator[Target]:
        async with DuckdbTarget(tmp_path / "target.duckdb") as target:
            yield target
