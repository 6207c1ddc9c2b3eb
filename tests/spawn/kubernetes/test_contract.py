"""The Kubernetes spawner keeps the contract, against a simulated cluster that runs the workers as processes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from drumbeat.spawn.contract import Controllers, PoolListContract, SurvivorContract
from drumbeat.spawn.interface import Order
from drumbeat.spawn.kubernetes import KubernetesSpawner
from spawn.kubernetes.conftest import settings_at
from spawn.kubernetes.server import ApiServer


class TestKubernetesSpawner(SurvivorContract, PoolListContract):
    @pytest.fixture
    def controllers(self, server: ApiServer, tmp_path: Path) -> Controllers:
        settings = settings_at(tmp_path)
        return lambda: KubernetesSpawner(settings, {"DRUMBEAT_STORE": "postgresql://ann@db/app"}, "store-of-the-contract")

    @pytest.fixture
    def written(self, tmp_path: Path) -> Sequence[Path]:
        return [tmp_path]

    def unstartable(self, order: Order) -> Order:
        """Kubernetes accepts any command, but no Secret with a name of more than 253 characters in it."""
        return replace(order, environment={"X" * 254: "1"})
