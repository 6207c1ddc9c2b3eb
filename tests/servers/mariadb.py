"""A real MariaDB for tests and benchmarks, from Debian's package but without installing it.

with MariaDbServer() as server:
    url = server.new_database()
"""

import asyncio
import itertools
import shutil
import subprocess
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from servers.certificates import can_make_certificates, make_certificate
from servers.debian import Program, Unavailable
from servers.life import Server, greets
from servers.unprivileged import RunAs, give, run, start, usual

__all__ = ["PASSWORD", "USER", "MariaDbServer", "Unavailable", "installation"]

USER, PASSWORD = "bench", "it's: a/secret@"
_SCRIPTS = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
_SETTINGS: Mapping[str, str] = {
    "max-connections": "1500",
    "innodb-buffer-pool-size": "128M",
    "innodb-use-native-aio": "0",
    "innodb-flush-log-at-trx-commit": "1",
    "skip-name-resolve": "1",
    "performance-schema": "0",
    "query-cache-type": "DEMAND",  # there, and not in the way
    "query-cache-size": "1M",
    "loose-innodb-log-file-size": "64M",
}


def _lay_out(tree: Path, flat: Path) -> None:
    """The program, its messages, character sets and first tables."""
    for file in [*tree.rglob("sbin/mariadbd"), *(tree / "usr/share/mysql").glob("*.sql")]:
        shutil.copy(file, flat / file.name)
    for folder in ("english", "charsets"):
        shutil.copytree(tree / "usr/share/mysql" / folder, flat / folder, dirs_exist_ok=True)


_PROGRAM = Program(
    name="mariadbd",
    folder="mariadb",
    packages=("mariadb-server-core",),
    depending="mariadb-server-core",
    lay_out=_lay_out,
)


@cache
def installation() -> Path:
    """A folder with ``mariadbd``, the files and the libraries it needs, unpacked into the cache the first time."""
    return _PROGRAM.unpacked()


class MariaDbServer(Server):
    """A MariaDB whose user must say a password."""

    PRODUCT, PREFIX = "MariaDB", "drumbeat-mariadb-"

    def __init__(
        self, *, settings: Mapping[str, str] | None = None, run_as: RunAs | None = None, folder: Path | None = None
    ) -> None:
        super().__init__(folder)
        self._settings = {**_SETTINGS, **(settings or {})}
        self._run_as = run_as or usual()
        self._numbers = itertools.count(1)

    @property
    def certificate(self) -> Path | None:
        """What TLS clients trust; None where there is no openssl to make one with."""
        path = self.folder / "certificate.pem"
        return path if path.exists() else None

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

    def _furnish(self) -> None:
        folder = self.folder
        for name in ("data", "tmp"):
            (folder / name).mkdir()
        shutil.copytree(installation(), folder / "program")
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

    def _launched(self, port: int) -> subprocess.Popen[bytes]:
        place = ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={self.folder / 'socket'}"]
        if self.certificate is not None:
            place += [f"--ssl-cert={self.certificate}", f"--ssl-key={self.folder / 'key.pem'}"]
        command = [*self._command(), *place, f"--init-file={self.folder / 'users.sql'}", f"--pid-file={self.folder / 'pid'}"]
        return start(command, self._run_as, self.log)

    def _is_ready(self, process: subprocess.Popen[bytes], port: int) -> bool:
        return greets(port)
