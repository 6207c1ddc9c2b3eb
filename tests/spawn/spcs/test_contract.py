"""The SPCS spawner keeps the contract, against a simulated account that runs the workers as processes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from drumbeat.spawn.contract import ANN, POOL, Controllers, PoolListContract, SurvivorContract, programs
from drumbeat.spawn.interface import Order, Spawner
from spawn.spcs.account import SpcsAccount
from spawn.spcs.conftest import spawner_at


class TestSpcsSpawner(SurvivorContract, PoolListContract):
    @pytest.fixture
    def controllers(self, account: SpcsAccount) -> Controllers:
        return lambda: spawner_at(account)

    @pytest.fixture
    def written(self, tmp_path: Path) -> Sequence[Path]:
        return [tmp_path]

    def unstartable(self, order: Order) -> Order:
        """Snowflake accepts any command, but no variable with a dash in its name."""
        return replace(order, environment={"not-a-variable": "1"})

    async def test_a_drained_worker_finishes_its_work_though_its_log_is_gone(
        self, spawner: Spawner, account: SpcsAccount
    ) -> None:
        assert not spawner.traits.keeps_drained
        await self.running(spawner, self.order_of(programs.FINISHES))
        [service] = account.services.values()

        await spawner.drain(POOL, ANN)
        await self.until_ended(spawner)

        assert account.log_of(service).read_text().splitlines() == ["ready", "finishing", "finished"]
