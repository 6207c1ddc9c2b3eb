"""A real Docker daemon for the tests of this folder, and settings for spawners that use it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from drumbeat.spawn.docker import DockerSettings, PullPolicy
from servers.dockerd import DockerDaemon


@pytest.fixture(scope="session")
def dockerd() -> Iterator[DockerDaemon]:
    with DockerDaemon() as daemon:
        yield daemon


def settings_at(daemon: DockerDaemon, **changed: Any) -> DockerSettings:
    given: dict[str, Any] = {
        "base_url": daemon.url,
        "image": daemon.image,
        "pull": PullPolicy.NEVER,
        "timeout": timedelta(minutes=2),
        **changed,
    }
    return DockerSettings(**given)
