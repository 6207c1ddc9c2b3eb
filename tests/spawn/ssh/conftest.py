"""A real SSH server for the tests of this folder, and settings for spawners that use it."""

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from drumbeat.spawn.ssh import SshHost, SshSettings
from servers.openssh import OpenSshServer, Unavailable

MakeSettings = Callable[..., SshSettings]


@pytest.fixture(scope="session")
def sshd() -> Iterator[OpenSshServer]:
    try:
        with OpenSshServer() as server:
            yield server
    except Unavailable as exc:
        pytest.skip(f"OpenSSH is not available: {exc}")


def host_at(server: OpenSshServer, name: str = "here", **changed: Any) -> SshHost:
    given: dict[str, Any] = {"address": "127.0.0.1", "port": server.port, "user": server.user, "slots": 32, **changed}
    return SshHost(name=name, **given)


def settings_at(server: OpenSshServer, folder: Path, **changed: Any) -> SshSettings:
    given: dict[str, Any] = {
        "hosts": [host_at(server)],
        "key_file": server.key_file,
        "known_hosts": server.known_hosts,
        "ssh_agent": False,
        "python": sys.executable,
        "folder": str(folder),
        "connect_timeout": timedelta(minutes=2),
        "timeout": timedelta(minutes=2),
        **changed,
    }
    return SshSettings(**given)
