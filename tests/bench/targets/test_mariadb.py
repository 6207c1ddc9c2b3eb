"""MariaDB as a target keeps the contract."""

from collections.abc import AsyncIterator

import pytest

from drumbeat.bench.targets.contract import TargetContract
from drumbeat.bench.targets.interface import Target
from drumbeat.bench.targets.mysql import MysqlTarget

pytestmark = pytest.mark.xdist_group("mariadb")


class TestMariaDb(TargetContract):
    slow_sql = "SELECT SLEEP(60)"

    @pytest.fixture
    async def target(self, mariadb_url: str) -> AsyncIterator[Target]:
        async with MysqlTarget(mariadb_url) as target:
            yield target
