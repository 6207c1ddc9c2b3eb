"""PgBouncer in transaction mode before a test's PostgreSQL, from Debian's package but without installing it."""

import platform
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from servers.places import free_port
from servers.postgres import PostgresServer
from servers.reaper import reaper
from servers.unprivileged import RunAs, ServerFailed, give, start, usual

CACHE = Path.home() / ".cache" / "drumbeat-tests"
_START_SECONDS = 15.0
_APT_SECONDS = 60.0
_PORT_TRIES = 5

_CONFIGURATION = """\
[databases]
* = host=127.0.0.1 port={upstream}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users.txt
admin_users = postgres
pool_mode = transaction
default_pool_size = {pool_size}
max_client_conn = 1000
ignore_startup_parameters = extra_float_digits
"""


class Unavailable(Exception):
    """There is no PgBouncer to be had here; the message says why."""


@cache
def installation() -> Path:
    """A folder with ``pgbouncer`` and the libraries it needs: the system's program, else one unpacked into the cache."""
    system = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin:/opt/homebrew/bin")
    if system is not None:
        return Path(system).parent
    place = CACHE / f"pgbouncer-{platform.machine()}"
    if not (place / "pgbouncer").exists():
        _unpack_into(place)
    return place


def _unpack_into(place: Path) -> None:
    """Fetch the package and move it into place at once, so that two test processes may do it together."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Unavailable("no pgbouncer in the path, and no apt-get and dpkg to fetch Debian's package with")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        flat = Path(work) / "flat"
        flat.mkdir()
        _fetch(Path(work), ["pgbouncer"], flat)
        if _missing_libraries(flat):
            _fetch(Path(work), _library_packages(Path(work)), flat)
        if missing := _missing_libraries(flat):
            raise Unavailable(f"Debian's pgbouncer needs libraries that are not here: {', '.join(missing)}")
        try:
            flat.rename(place)
        except OSError:
            if not (place / "pgbouncer").exists():
                raise


def _fetch(work: Path, packages: Sequence[str], flat: Path) -> None:
    """Download packages and lay their program and libraries side by side."""
    if not _apt(work, "download", *packages):
        _apt(work, "update")
        if not _apt(work, "download", *packages):
            raise Unavailable(f"apt-get download {' '.join(packages)} failed, also after apt-get update")
    for package in work.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(work / "tree")], check=True, capture_output=True)
    for file in [*(work / "tree").rglob("lib*.so.*"), *(work / "tree").rglob("sbin/pgbouncer")]:
        shutil.copy(file, flat / file.name)


def _apt(work: Path, *arguments: str) -> bool:
    try:
        done = subprocess.run(["apt-get", "-q", *arguments], cwd=work, capture_output=True, check=False, timeout=_APT_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _library_packages(work: Path) -> list[str]:
    package = next(work.glob("pgbouncer_*.deb"))
    depends = subprocess.run(["dpkg", "-f", str(package), "Depends"], check=True, capture_output=True, text=True).stdout
    names = [re.split(r"[ |(:]", part.strip())[0] for part in depends.split(",")]
    return [name for name in names if name.startswith("lib") and name != "libc6"]


def _missing_libraries(flat: Path) -> list[str]:
    command = ["ldd", str(flat / "pgbouncer")]
    listing = subprocess.run(command, env=_library_path(flat), check=False, capture_output=True, text=True).stdout
    return [line.split()[0] for line in listing.splitlines() if "not found" in line]


def _library_path(folder: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(folder), "PATH": "/usr/bin:/bin"}


class PgBouncer:
    """A pooler before one server: any database of that server can be reached through it.

    Transaction mode means that two transactions of one client may meet two backends: nothing that lives in a session
    (prepared statements, LISTEN, advisory session locks, SET) can be relied on.
    """

    def __init__(self, server: PostgresServer, *, pool_size: int = 10, run_as: RunAs | None = None) -> None:
        self._server = server
        self._pool_size = pool_size
        self._run_as = run_as or usual()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self.port = 0

    def url(self, database_url: str) -> str:
        """The same database, reached through the pooler."""
        return f"postgresql://postgres@127.0.0.1:{self.port}{urlsplit(database_url).path}"

    def start(self) -> None:
        """Start it and return once it takes connections. Raises Unavailable when there is no PgBouncer to be had."""
        program = installation()
        self._folder = folder = Path(tempfile.mkdtemp(prefix="drumbeat-pgbouncer-"))
        reaper().sweep(str(folder))
        give(folder, self._run_as)
        for file in [program / "pgbouncer", *program.glob("lib*.so.*")]:
            shutil.copy(file, folder / file.name)
        (folder / "users.txt").write_text('"postgres" ""\n')
        for _ in range(_PORT_TRIES):
            if self._try_port(folder, free_port()):
                return
        raise ServerFailed(f"PgBouncer did not start; its log:\n{(folder / 'pgbouncer.log').read_text(errors='replace')}")

    def stop(self) -> None:
        """End it at once; clients are cut off."""
        self._end()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder, self.port = None, 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _try_port(self, folder: Path, port: int) -> bool:
        configuration = folder / "pgbouncer.ini"
        configuration.write_text(
            _CONFIGURATION.format(upstream=self._server.port, port=port, folder=folder, pool_size=self._pool_size)
        )
        command = [str(folder / "pgbouncer"), str(configuration)]
        self._process = start(command, self._run_as, folder / "pgbouncer.log", {"LD_LIBRARY_PATH": str(folder)})
        reaper().watch(self._process.pid)
        if _accepts(self._process, port):
            self.port = port
            return True
        self._end()
        return False

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            reaper().forget(self._process.pid)
            self._process = None


def _accepts(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether it comes to listen; False once it has exited (the port was taken, most likely)."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.005)
    return False
