"""A real Redis for tests and benchmarks: the system's, or else Debian's package without installing it.

with RedisServer() as server:
    url = server.new_database()
"""

import itertools
import platform
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from servers.places import free_port
from servers.reaper import reaper
from servers.unprivileged import RunAs, ServerFailed, start

CACHE = Path.home() / ".cache" / "drumbeat-tests"
_PACKAGES = ("redis-server", "redis-tools")
_START_SECONDS, _STOP_SECONDS, _APT_SECONDS = 30.0, 30.0, 120.0
_PORT_TRIES = 5
_SETTINGS: Mapping[str, str] = {"save": "", "appendonly": "no", "databases": "16"}
DURABLE: Mapping[str, str] = {"appendonly": "yes", "appendfsync": "always"}  #: what "nothing lost on restart" needs


class Unavailable(Exception):
    """There is no Redis to be had here; the message says why."""


@cache
def installation() -> Path:
    """A folder with ``redis-server`` and the libraries it needs: the system's, else one unpacked into the cache."""
    system = shutil.which("redis-server")
    if system is not None:
        return Path(system).parent
    place = CACHE / f"redis-{platform.machine()}"
    if not (place / "redis-server").exists():
        _unpack_into(place)
    return place


def _unpack_into(place: Path) -> None:
    """Fetch the packages and move them into place at once, so that two test processes may do it together."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Unavailable("no redis-server in the path, and no apt-get and dpkg to fetch Debian's package with")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        flat = Path(work) / "flat"
        flat.mkdir()
        _fetch(Path(work), _PACKAGES, flat)
        if missing := _missing_libraries(flat):
            _fetch(Path(work), _library_packages(Path(work), missing), flat)
        if missing := _missing_libraries(flat):
            raise Unavailable(f"Debian's redis-server needs libraries that are not here: {', '.join(missing)}")
        try:
            flat.rename(place)
        except OSError:
            if not (place / "redis-server").exists():
                raise


def _fetch(work: Path, packages: Sequence[str], flat: Path) -> None:
    """Download packages and lay their program and libraries side by side; one binary is server and checker."""
    if not _apt(work, "download", *packages):
        _apt(work, "update")
        if not _apt(work, "download", *packages):
            raise Unavailable(f"apt-get download {' '.join(packages)} failed, also after apt-get update")
    for package in work.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(work / "tree")], check=True, capture_output=True)
    for library in (work / "tree").rglob("lib*.so.*"):
        shutil.copy(library, flat / library.name)
    shutil.copy(work / "tree/usr/bin/redis-check-rdb", flat / "redis-server")


def _apt(work: Path, *arguments: str) -> bool:
    try:
        done = subprocess.run(["apt-get", "-q", *arguments], cwd=work, capture_output=True, check=False, timeout=_APT_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _library_packages(work: Path, missing: Sequence[str]) -> list[str]:
    """Those of the tools' dependencies whose names begin like the libraries that are missing."""
    package = next(work.glob("redis-tools_*.deb"))
    depends = subprocess.run(["dpkg", "-f", str(package), "Depends"], check=True, capture_output=True, text=True).stdout
    names = [re.split(r"[ |(:]", part.strip())[0] for part in depends.split(",")]
    wanted = tuple(library.partition(".so")[0] for library in missing)
    return [name for name in names if name.startswith(wanted)]


def _missing_libraries(flat: Path) -> list[str]:
    environment = {"LD_LIBRARY_PATH": str(flat), "PATH": "/usr/bin:/bin"}
    command = ["ldd", str(flat / "redis-server")]
    listing = subprocess.run(command, env=environment, check=False, capture_output=True, text=True).stdout
    return [line.split()[0] for line in listing.splitlines() if "not found" in line]


class RedisServer:
    """One server on a loopback port of its own, in a temporary folder of its own.

    The port stays the same over stop and start. The server ends with this process, even if this process is killed.
    """

    def __init__(
        self, *, settings: Mapping[str, str] | None = None, password: str | None = None, folder: Path | None = None
    ) -> None:
        self._settings = {**_SETTINGS, **(settings or {}), **({"requirepass": password} if password else {})}
        self._password = password
        self._parent = folder
        self._prefixes = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self.port = 0

    def url(self, *, database: int = 0, with_password: bool = True) -> str:
        credentials = f":{quote(self._password, safe='')}@" if self._password and with_password else ""
        return f"redis://{credentials}127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """A prefix never used before; returns the URL of a store that keeps to it."""
        return f"{self.url()}?prefix=test{next(self._prefixes)}"

    # Life

    def start(self) -> None:
        """Start it, on the port it had before if it had one. Raises Unavailable when there is no Redis to be had."""
        if self._process is not None:
            return
        if self._folder is None:
            installation()
            self._folder = Path(tempfile.mkdtemp(prefix="drumbeat-redis-", dir=self._parent))
            reaper().sweep(str(self._folder))
        for _ in range(1 if self.port else _PORT_TRIES):
            if self._try_port(self.port or free_port()):
                return
        raise ServerFailed(f"Redis did not start; the end of its log:\n{self._log_tail()}")

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill -9: what a crash looks like to its clients."""
        self._end(signal.SIGKILL)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Frozen: connections are still accepted by the kernel, and nobody answers."""
        if self._process is None:
            raise ServerFailed("expected a started server")
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its folder."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder, self.port = None, 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # Inside

    @property
    def _home(self) -> Path:
        if self._folder is None:
            raise ServerFailed("expected a started server; use it as: with RedisServer() as server")
        return self._folder

    def _try_port(self, port: int) -> bool:
        program = installation()
        place = {"bind": "127.0.0.1", "port": str(port), "dir": str(self._home), "protected-mode": "no", "daemonize": "no"}
        options = [part for name, value in {**self._settings, **place}.items() for part in (f"--{name}", value)]
        environment = {"LD_LIBRARY_PATH": str(program)} if program.is_relative_to(CACHE) else {}
        command = [str(program / "redis-server"), *options]
        self._process = start(command, RunAs.ITSELF, self._home / "server.log", environment)
        reaper().watch(self._process.pid)
        if _answers(self._process, port):
            self.port = port
            return True
        self._end(signal.SIGKILL)
        return False

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired as exc:
            self._process.kill()
            raise ServerFailed(f"Redis did not stop within {_STOP_SECONDS:.0f} s:\n{self._log_tail()}") from exc
        reaper().forget(self._process.pid)
        self._process = None

    def _log_tail(self) -> str:
        log = self._home / "server.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else "(it wrote none)"


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether it comes to answer a PING (also by asking for a password); False once it has exited, or is still loading."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(1)
            try:
                probe.connect(("127.0.0.1", port))
                probe.sendall(b"PING\r\n")
                if probe.recv(64).startswith((b"+PONG", b"-NOAUTH")):
                    return True
            except OSError:
                pass
        time.sleep(0.01)
    return False
