"""The Slurm spawner keeps the contract, on a real cluster of one node."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from drumbeat.spawn.contract import Controllers, PoolListContract, SurvivorContract
from drumbeat.spawn.interface import Order
from drumbeat.spawn.slurm import SlurmSpawner
from engines.slurm.conftest import settings_at
from servers.slurm import SlurmServer


class TestSlurmSpawner(SurvivorContract, PoolListContract):
    @pytest.fixture
    def controllers(self, slurm: SlurmServer, tmp_path: Path) -> Controllers:
        settings = settings_at(slurm, tmp_path)
        return lambda: SlurmSpawner(settings, {"DRUMBEAT_STORE": "postgresql://ann@db/app"}, str(tmp_path))

    @pytest.fixture
    def written(self, slurm: SlurmServer, tmp_path: Path) -> Sequence[Path]:
        return [tmp_path, slurm.folder]

    def unstartable(self, order: Order) -> Order:
        """Slurm accepts every command, and its nodes find out; a variable without a name is refused before."""
        return replace(order, environment={"no name": ""})
