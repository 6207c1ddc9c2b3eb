"""SQLite as a target keeps the contract."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drumbeat.bench.targets.contract import TargetContract
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.sqlite import SqliteTarget


class TestSqlite(TargetContract):
    slow_sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000000) SELECT MAX(i) FROM n"

    @pytest.fixture
    async def target(self, tmp_path: Path) -> AsyncIterator[Target]:
        async with SqliteTarget(tmp_path / "target.db") as target:
            yield target
