"""A real MariaDB for tests and benchmarks, from Debian's package but without installing it.

with MariaDbServer() as server:
    url = server.new_database()
"""

import asyncio
import itertools
import platform
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from servers.certificates import can_make_certificates, make_certificate
from servers.places import free_port
from servers.reaper import reaper
from servers.unprivileged import RunAs, ServerFailed, give, run, start, usual

CACHE = Path.home() / ".cache" / "drumbeat-tests"
USER, PASSWORD = "bench", "it's: a/secret@"
_PACKAGE = "mariadb-server-core"
_SCRIPTS = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
_START_SECONDS, _STOP_SECONDS, _APT_SECONDS = 30.0, 30.0, 120.0
_PORT_TRIES = 5
_SETTINGS: Mapping[str, str] = {
    "max-connections": "1500",
    "innodb-buffer-pool-size": "128M",
    "innodb-use-native-aio": "0",
    "innodb-flush-log-at-trx-commit": "1",
    "skip-name-resolve": "1",
    "performance-schema": "0",
    "loose-innodb-log-file-size": "64M",
}


class Unavailable(Exception):
    """There is no MariaDB to be had here; the message says why."""


@cache
def installation() -> Path:
    """A folder with ``mariadbd``, the files and the libraries it needs, unpacked into the cache the first time."""
    place = CACHE / f"mariadb-{platform.machine()}"
    if not (place / "mariadbd").exists():
        _unpack_into(place)
    return place


def _unpack_into(place: Path) -> None:
    """Fetch the package and move it into place at once, so that two test processes may do it together."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Unavailable("no apt-get and dpkg to fetch Debian's package with")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        flat = Path(work) / "flat"
        flat.mkdir()
        _lay_out(_fetch(Path(work), [_PACKAGE]), flat)
        if missing := _missing_libraries(flat):
            _lay_out(_fetch(Path(work), _library_packages(Path(work), missing)), flat)
        if missing := _missing_libraries(flat):
            raise Unavailable(f"Debian's {_PACKAGE} needs libraries that are not here: {', '.join(missing)}")
        try:
            flat.rename(place)
        except OSError:
            if not (place / "mariadbd").exists():
                raise


def _fetch(work: Path, packages: Sequence[str]) -> Path:
    """Download packages and unpack them over one another."""
    if not _apt(work, "download", *packages):
        _apt(work, "update")
        if not _apt(work, "download", *packages):
            raise Unavailable(f"apt-get download {' '.join(packages)} failed, also after apt-get update")
    for package in work.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(work / "tree")], check=True, capture_output=True)
    return work / "tree"


def _lay_out(tree: Path, flat: Path) -> None:
    """The program, its messages, character sets and first tables, and libraries, in one folder."""
    for file in [*tree.rglob("lib*.so.*"), *tree.rglob("sbin/mariadbd"), *(tree / "usr/share/mysql").glob("*.sql")]:
        shutil.copy(file, flat / file.name)
    for folder in ("english", "charsets"):
        shutil.copytree(tree / "usr/share/mysql" / folder, flat / folder, dirs_exist_ok=True)


def _apt(work: Path, *arguments: str) -> bool:
    try:
        done = subprocess.run(["apt-get", "-q", *arguments], cwd=work, capture_output=True, check=False, timeout=_APT_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _library_packages(work: Path, missing: Sequence[str]) -> list[str]:
    """Those of the package's dependencies whose names begin like the libraries that are missing."""
    package = next(work.glob(f"{_PACKAGE}_*.deb"))
    depends = subprocess.run(["dpkg", "-f", str(package), "Depends"], check=True, capture_output=True, text=True).stdout
    names = [re.split(r"[ |(:]", part.strip())[0] for part in depends.split(",")]
    wanted = tuple(library.partition(".so")[0] for library in missing)
    return [name for name in names if name.startswith(wanted)]


def _missing_libraries(flat: Path) -> list[str]:
    environment = {"LD_LIBRARY_PATH": str(flat), "PATH": "/usr/bin:/bin"}
    command = ["ldd", str(flat / "mariadbd")]
    listing = subprocess.run(command, env=environment, check=False, capture_output=True, text=True).stdout
    return [line.split()[0] for line in listing.splitlines() if "not found" in line]


class MariaDbServer:
    """One server on a loopback port of its own, in a temporary folder of its own; its user must say a password.

    The port stays the same over stop and start. The server ends with this process, even if this process is killed.
    """

    def __init__(
        self, *, settings: Mapping[str, str] | None = None, run_as: RunAs | None = None, folder: Path | None = None
    ) -> None:
        self._settings = {**_SETTINGS, **(settings or {})}
        self._run_as = run_as or usual()
        self._parent = folder
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self.port = 0

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise ServerFailed("expected a started server; use it as: with MariaDbServer() as server")
        return self._folder

    @property
    def certificate(self) -> Path | None:
        """What TLS clients trust; None where there is no openssl to make one with."""
        path = self.folder / "certificate.pem"
        return path if path.exists() else None

    # Life

    def start(self) -> None:
        """Start it, on the port it had before if it had one. Raises Unavailable when there is no MariaDB to be had."""
        if self._process is not None:
            return
        if self._folder is None:
            self._create(installation())
        for _ in range(1 if self.port else _PORT_TRIES):
            if self._try_port(self.port or free_port()):
                return
        raise ServerFailed(f"MariaDB did not start; the end of its log:\n{self._log_tail()}")

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill -9: what a power cut looks like to its clients. ``start`` recovers it."""
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

    # Databases

    def url(self, database: str, *, password: str | None = PASSWORD) -> str:
        credentials = USER + ("" if password is None else f":{quote(password, safe='')}")
        return f"mysql://{credentials}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Make a database under a name never used before; returns its URL."""
        name = f"test_{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        self.sql(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]}")

    def sql(self, statement: str) -> Sequence[Sequence[Any]]:
        """Run a statement, in a thread of its own, since the caller's may have an event loop that is running."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._sql(statement)).result()

    def _sql(self, statement: str) -> Coroutine[Any, Any, Sequence[Sequence[Any]]]:
        import asyncmy

        async def fetched() -> Sequence[Sequence[Any]]:
            connection: Any = await asyncmy.connect(
                host="127.0.0.1", port=self.port, user=USER, password=PASSWORD, autocommit=True
            )
            try:
                cursor = connection.cursor()
                await cursor.execute(statement)
                return list(await cursor.fetchall())
            finally:
                await connection.ensure_closed()

        return fetched()

    # Inside

    def _create(self, program: Path) -> None:
        self._folder = folder = Path(tempfile.mkdtemp(prefix="drumbeat-mariadb-", dir=self._parent))
        reaper().sweep(str(folder))
        for name in ("data", "tmp"):
            (folder / name).mkdir()
        shutil.copytree(program, folder / "program")
        if can_make_certificates():
            make_certificate(folder)
        escaped = PASSWORD.replace("'", "''")
        users = f"CREATE USER IF NOT EXISTS {USER}@'%' IDENTIFIED BY '{escaped}';\nGRANT ALL PRIVILEGES ON *.* TO {USER}@'%';\n"
        (folder / "users.sql").write_text(users)
        texts = [(folder / "program" / name).read_text() for name in _SCRIPTS]
        (folder / "bootstrap.sql").write_text("\n".join(["CREATE DATABASE mysql;", "USE mysql;", *texts]))
        for path in [folder, *folder.iterdir()]:
            give(path, self._run_as)
        bootstrap = f'exec "$0" "$@" < "{folder / "bootstrap.sql"}"'
        run(["sh", "-c", bootstrap, *self._command(), "--bootstrap"], self._run_as, folder)

    def _command(self) -> list[str]:
        program, data = self.folder / "program", self.folder / "data"
        return [
            "/usr/bin/env",
            f"LD_LIBRARY_PATH={program}",
            str(program / "mariadbd"),
            "--no-defaults",
            f"--datadir={data}",
            f"--tmpdir={self.folder / 'tmp'}",  # a server that starts removes what it finds there, be it another's
            f"--lc-messages-dir={program}",
            f"--character-sets-dir={program / 'charsets'}",
            *(f"--{name}={value}" for name, value in self._settings.items()),
        ]

    def _try_port(self, port: int) -> bool:
        place = ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={self.folder / 'socket'}"]
        if self.certificate is not None:
            place += [f"--ssl-cert={self.certificate}", f"--ssl-key={self.folder / 'key.pem'}"]
        command = [*self._command(), *place, f"--init-file={self.folder / 'users.sql'}", f"--pid-file={self.folder / 'pid'}"]
        self._process = start(command, self._run_as, self.folder / "server.log")
        reaper().watch(self._process.pid)
        if _accepts(self._process, port):
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
            raise ServerFailed(f"MariaDB did not stop within {_STOP_SECONDS:.0f} s:\n{self._log_tail()}") from exc
        reaper().forget(self._process.pid)
        self._process = None

    def _log_tail(self) -> str:
        log = self.folder / "server.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else "(it wrote none)"


def _accepts(process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether it comes to greet; False once it has exited (the port was taken, most likely)."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(1)
            try:
                probe.connect(("127.0.0.1", port))
                if probe.recv(64):
                    return True
            except OSError:
                time.sleep(0.01)
    return False
