"""A real Ray head for tests: installed from PyPI into a virtual environment of its own, which stays in the cache.

with RayHead() as head:
    head.url, head.token, head.session
"""

import fcntl
import os
import platform
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import Final

import psutil

from servers.debian import CACHE
from servers.life import Server
from servers.places import free_port
from servers.reaper import wait_gone
from servers.unprivileged import RunAs, ServerFailed, start

__all__ = ["RayHead", "installation"]

VERSION: Final = "2.60.0"
_LOWEST_PORT: Final = 20_000  #: Ray's own workers listen between 10002 and 19999
_INSTALL_SECONDS: Final = 1800.0
_START: Final = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
_PORTS: Final = (
    "port",
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "runtime-env-agent-port",
    "metrics-export-port",
    "node-manager-port",
    "object-manager-port",
)


@cache
def installation() -> Path:
    """The Python of a virtual environment with Ray, made the first time. Two test processes may ask for it together."""
    folder = CACHE / f"ray-{VERSION}-{platform.machine()}"
    ready = folder / ".ready"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            _install(folder)
            ready.touch()
    return folder / "bin" / "python"


def _install(folder: Path) -> None:
    python = folder / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", f"ray[default]=={VERSION}"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS)
        if done.returncode != 0:
            raise ServerFailed(f"{' '.join(command[:4])} exited with {done.returncode}: {done.stderr.strip()[-2000:]}")


class RayHead(Server):
    """A Ray head that asks for a token, with more CPUs than this machine has, so that many jobs run at once."""

    PRODUCT, PREFIX = "Ray", "drumbeat-ray-"
    START_SECONDS = 180.0
    STOP_SECONDS = 60.0

    def __init__(self, parent: Path | None = None, *, cpus: int = 64) -> None:
        super().__init__(parent)
        self.token = token_hex(32)
        self._cpus = cpus

    @property
    def url(self) -> str:
        """Of the dashboard."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def session(self) -> Path:
        """The folder in which Ray writes everything. Its path must be short: sockets lie in it."""
        return self.folder / "t"

    def close(self) -> None:
        """End all its processes and remove its folder."""
        self._end_all()
        super().close()

    def _end_all(self) -> None:
        tree = self._tree()
        for process in tree:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        wait_gone(tree, self.STOP_SECONDS)

    def _tree(self) -> list[psutil.Process]:
        """Its processes, also those that no longer descend from the first: they have the token in their environment."""
        return [process for process in psutil.process_iter() if _variable(process, "RAY_AUTH_TOKEN") == self.token]

    def _furnish(self) -> None:
        installation()
        self.session.mkdir()

    def _try_port(self, port: int) -> bool:
        """Try a port outside the range of Ray's workers; a start that failed leaves nothing behind."""
        if super()._try_port(port if port >= _LOWEST_PORT else _high_port()):
            return True
        self._end_all()
        return False

    def _launched(self, port: int) -> subprocess.Popen[bytes]:
        ports = {name: _high_port() for name in _PORTS}
        options = {
            **ports,
            "node-ip-address": "127.0.0.1",
            "dashboard-host": "127.0.0.1",
            "dashboard-port": port,
            "min-worker-port": 0,  # as the kernel gives them
            "max-worker-port": 0,
            "num-cpus": self._cpus,
            "num-gpus": 0,
            "object-store-memory": 80_000_000,
            "temp-dir": self.session,
            "include-log-monitor": "false",
        }
        words = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        command = [str(installation()), "-c", _START, "start", "--head", "--block", "--disable-usage-stats", *words]
        return start(command, RunAs.ITSELF, self.log, self._environment)

    @property
    def _environment(self) -> Mapping[str, str]:
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_prestart_worker_first_driver": "0",
            "RAY_enable_worker_prestart": "0",
            "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
            "PYTHONDONTWRITEBYTECODE": "",
            "PATH": f"{installation().parent}:{os.environ['PATH']}",
        }

    def _is_ready(self, process: subprocess.Popen[bytes], port: int) -> bool:
        if b"Ray runtime started" not in self.log.read_bytes():
            return False
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/jobs/", headers={"Authorization": f"Bearer {self.token}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _high_port() -> int:
    while (port := free_port()) < _LOWEST_PORT:
        pass
    return port


def _variable(process: psutil.Process, name: str) -> str | None:
    try:
        return process.environ().get(name)
    except (psutil.Error, OSError):
        return None
