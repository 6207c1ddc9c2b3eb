"""The Ray spawner keeps the contract, against a real Ray head."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from drumbeat.spawn.contract import Controllers, PoolListContract, SurvivorContract
from drumbeat.spawn.interface import Order
from drumbeat.spawn.ray import RaySpawner
from engines.ray.conftest import Head, settings_at


class TestRaySpawner(SurvivorContract, PoolListContract):
    timeout = timedelta(minutes=8)
    interval = timedelta(milliseconds=100)

    @pytest.fixture
    def controllers(self, head: Head) -> Controllers:
        scope = f"store-of-the-contract-{uuid4().hex}"
        environment = {"DRUMBEAT_STORE": "postgresql://ann@db/app"}
        return lambda: RaySpawner(settings_at(head), environment, scope, variables=head.variables)

    @pytest.fixture
    def written(self, head: Head) -> Sequence[Path]:
        return [head.session]

    def unstartable(self, order: Order) -> Order:
        """Ray accepts every command, and finds out on the node; only what no system can execute is refused at once."""
        return replace(order, command=("sh\0",))
