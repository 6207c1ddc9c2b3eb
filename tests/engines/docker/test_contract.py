"""The Docker spawner keeps the contract, against a real Docker daemon."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from drumbeat.spawn.contract import Controllers, PoolListContract, SurvivorContract
from drumbeat.spawn.docker import DockerSpawner
from engines.docker.conftest import settings_at
from servers.dockerd import DockerDaemon


class TestDockerSpawner(SurvivorContract, PoolListContract):
    @pytest.fixture
    def controllers(self, dockerd: DockerDaemon) -> Controllers:
        settings = settings_at(dockerd, price_per_hour=0.2)
        return lambda: DockerSpawner(settings, {"DRUMBEAT_STORE": "postgresql://ann@db/app"}, "store-of-the-contract")

    @pytest.fixture
    def written(self, dockerd: DockerDaemon) -> Sequence[Path]:
        return dockerd.written
