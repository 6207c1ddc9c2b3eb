"""A real Slurm cluster of one node for the tests of this folder, and settings for spawners that use it."""

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.spawn.slurm import SlurmSettings
from servers.slurm import SlurmServer


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmServer]:
    with SlurmServer() as server:
        yield server


def settings_at(server: SlurmServer, folder: Path, **changed: Any) -> SlurmSettings:
    given: dict[str, Any] = {
        "programs": server.bin,
        "folder": folder / "shared",
        "python": sys.executable,
        "timeout": timedelta(minutes=2),
        **changed,
    }
    return SlurmSettings(**given)
