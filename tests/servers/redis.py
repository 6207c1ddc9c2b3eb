"""A real Redis for tests and benchmarks: the system's, or else Debian's package without installing it.

with RedisServer() as server:
    url = server.new_database()
"""

import itertools
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from urllib.parse import quote

from servers import debian
from servers.debian import Unavailable
from servers.life import Server, greets
from servers.unprivileged import RunAs, start

__all__ = ["DURABLE", "RedisServer", "Unavailable", "installation"]

_SETTINGS: Mapping[str, str] = {"save": "", "appendonly": "no", "databases": "16"}
DURABLE: Mapping[str, str] = {"appendonly": "yes", "appendfsync": "always"}  #: what "nothing lost on restart" needs


def _lay_out(tree: Path, flat: Path) -> None:
    """One binary is server and checker."""
    shutil.copy(tree / "usr/bin/redis-check-rdb", flat / "redis-server")


_PROGRAM = debian.Program(
    name="redis-server",
    folder="redis",
    packages=("redis-server", "redis-tools"),
    depending="redis-tools",
    lay_out=_lay_out,
)


@cache
def installation() -> Path:
    """A folder with ``redis-server`` and the libraries it needs: the system's, else one unpacked into the cache."""
    system = shutil.which("redis-server")
    return Path(system).parent if system is not None else _PROGRAM.unpacked()


class RedisServer(Server):
    """A Redis that keeps nothing on disk, unless it is told to."""

    PRODUCT, PREFIX = "Redis", "drumbeat-redis-"

    def __init__(
        self, *, settings: Mapping[str, str] | None = None, password: str | None = None, folder: Path | None = None
    ) -> None:
        super().__init__(folder)
        self._settings = {**_SETTINGS, **(settings or {}), **({"requirepass": password} if password else {})}
        self._password = password
        self._prefixes = itertools.count(1)

    def url(self, *, database: int = 0, with_password: bool = True) -> str:
        credentials = f":{quote(self._password, safe='')}@" if self._password and with_password else ""
        return f"redis://{credentials}127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """A prefix never used before; returns the URL of a store that keeps to it."""
        return f"{self.url()}?prefix=test{next(self._prefixes)}"

    def _furnish(self) -> None:
        """Its settings are given with its command."""
        installation()

    def _launched(self, port: int) -> subprocess.Popen[bytes]:
        program = installation()
        place = {"bind": "127.0.0.1", "port": str(port), "dir": str(self.folder), "protected-mode": "no", "daemonize": "no"}
        options = [part for name, value in {**self._settings, **place}.items() for part in (f"--{name}", value)]
        environment = {"LD_LIBRARY_PATH": str(program)} if program.is_relative_to(debian.CACHE) else {}
        return start([str(program / "redis-server"), *options], RunAs.ITSELF, self.log, environment)

    def _is_ready(self, process: subprocess.Popen[bytes], port: int) -> bool:
        """Also where it asks for a password; not while it is still loading."""
        return greets(port, b"PING\r\n", lambda answer: answer.startswith((b"+PONG", b"-NOAUTH")))
