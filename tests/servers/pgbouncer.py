"""PgBouncer before a test's PostgreSQL, from Debian's package but without installing it."""

import shutil
import signal
import socket
import subprocess
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from servers.debian import Program, Unavailable
from servers.life import Server
from servers.postgres import PostgresServer
from servers.unprivileged import RunAs, give, start, usual

__all__ = ["PgBouncer", "Unavailable", "installation"]

_CONFIGURATION = """\
[databases]
* = host={address} port={upstream}

[pgbouncer]
listen_addr = {address}
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users.txt
admin_users = postgres
pool_mode = {mode}
default_pool_size = {pool_size}
max_client_conn = {clients}
ignore_startup_parameters = extra_float_digits
"""


def _lay_out(tree: Path, flat: Path) -> None:
    for file in tree.rglob("sbin/pgbouncer"):
        shutil.copy(file, flat / file.name)


_PROGRAM = Program(name="pgbouncer", folder="pgbouncer", packages=("pgbouncer",), depending="pgbouncer", lay_out=_lay_out)


@cache
def installation() -> Path:
    """A folder with ``pgbouncer`` and the libraries it needs: the system's program, else one unpacked into the cache."""
    system = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin:/opt/homebrew/bin")
    return Path(system).parent if system is not None else _PROGRAM.unpacked()


class PgBouncer(Server):
    """A pooler before one server: any database of that server can be reached through it.

    Transaction mode, the usual one here, means that two transactions of one client may meet two backends: nothing that lives in
    a session (prepared statements, LISTEN, advisory session locks, SET) can be relied on.
    """

    PRODUCT, PREFIX, STOP = "PgBouncer", "drumbeat-pgbouncer-", signal.SIGQUIT  #: at once; clients are cut off

    def __init__(
        self,
        server: PostgresServer,
        *,
        mode: str = "transaction",
        pool_size: int = 10,
        clients: int = 1000,
        run_as: RunAs | None = None,
    ) -> None:
        super().__init__()
        self._server = server
        self._settings = {"mode": mode, "pool_size": pool_size, "clients": clients}
        self.address, self.within = server.address, server.within
        self._run_as = run_as or usual()

    def url(self, database_url: str) -> str:
        """The same database, reached through the pooler."""
        return f"postgresql://postgres@{self.address}:{self.port}{urlsplit(database_url).path}"

    def _furnish(self) -> None:
        give(self.folder, self._run_as)
        for file in [installation() / "pgbouncer", *installation().glob("lib*.so.*")]:
            shutil.copy(file, self.folder / file.name)
        (self.folder / "users.txt").write_text('"postgres" ""\n')

    def _launched(self, port: int) -> subprocess.Popen[bytes]:
        said = {"upstream": self._server.port, "port": port, "folder": self.folder, "address": self.address, **self._settings}
        configuration = self.folder / "pgbouncer.ini"
        configuration.write_text(_CONFIGURATION.format(**said))
        command = [str(self.folder / "pgbouncer"), str(configuration)]
        return start(command, self._run_as, self.log, {"LD_LIBRARY_PATH": str(self.folder)}, self.within)

    def _is_ready(self, process: subprocess.Popen[bytes], port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.address, port)) == 0
