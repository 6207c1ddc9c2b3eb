"""The SSH spawner keeps the contract, against a real OpenSSH server."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from drumbeat.spawn.contract import Controllers, PoolListContract, SurvivorContract
from drumbeat.spawn.ssh import SshSpawner
from servers.openssh import OpenSshServer
from spawn.ssh.conftest import settings_at


@pytest.mark.soak
class TestSshSpawner(SurvivorContract, PoolListContract):
    @pytest.fixture
    def controllers(self, sshd: OpenSshServer, tmp_path: Path) -> Controllers:
        settings = settings_at(sshd, tmp_path)
        return lambda: SshSpawner(settings, {"DRUMBEAT_STORE": "postgresql://ann@db/app"}, "store-of-the-contract")

    @pytest.fixture
    def written(self, tmp_path: Path) -> Sequence[Path]:
        return [tmp_path]
