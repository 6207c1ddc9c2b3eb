"""A Snowflake for tests: fakesnow in an environment of its own, with a shim that corrects it (see snowflake_shim).

with SnowflakeServer() as server:
    connection = server.connect()
    server.fail("INSERT INTO orders", number=200001, sqlstate="22000")
    server.statements()
"""

import fcntl
import itertools
import json
import platform
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from servers.debian import CACHE
from servers.life import Server
from servers.unprivileged import RunAs, ServerFailed, start

__all__ = ["PASSWORD", "USER", "SentStatement", "SnowflakeServer", "installation"]

VERSION: Final = "0.12.1"
USER, PASSWORD = "BENCH", "it's: a/secret@"
WAREHOUSE = "COMPUTE_WH"
_INSTALL_SECONDS: Final = 1800.0
_TESTS = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class SentStatement:
    """What a client sent, word for word."""

    sql: str
    bindings: Any
    tag: str
    session: int
    user: str
    query_id: str | None
    error: str | None


@cache
def installation() -> Path:
    """The Python of a virtual environment with fakesnow, made the first time. Two test processes may ask for it together."""
    folder = CACHE / f"fakesnow-{VERSION}-{platform.machine()}"
    ready = folder / ".ready"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            _install(folder)
            ready.touch()
    return folder / "bin" / "python"


def _install(folder: Path) -> None:
    """Its own connector must be older than 5: fakesnow imports parts that later ones no longer have."""
    python = folder / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", f"fakesnow[server]=={VERSION}", "snowflake-connector-python<5"],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS)
        if done.returncode != 0:
            raise ServerFailed(f"{' '.join(command[:4])} exited with {done.returncode}: {done.stderr.strip()[-2000:]}")


class SnowflakeServer(Server):
    """A Snowflake account in memory on a loopback port. What it keeps is lost when it stops."""

    PRODUCT, PREFIX = "Snowflake emulator", "drumbeat-snowflake-"
    START_SECONDS = 120.0

    def __init__(self, *, folder: Path | None = None) -> None:
        super().__init__(folder)
        self._numbers = itertools.count(1)

    # Clients

    def parameters(self, database: str = "TEST", schema: str = "PUBLIC") -> dict[str, Any]:
        """What ``snowflake.connector.connect`` needs to come here."""
        place = {"host": "127.0.0.1", "port": self.port, "protocol": "http", "account": "emulator"}
        place["enable_server_session_keep_alive_auto_detection"] = False  # the connector warns where it is not said
        return {**place, "user": USER, "password": PASSWORD, "database": database, "schema": schema, "warehouse": WAREHOUSE}

    def connect(self, database: str = "TEST", **options: Any) -> Any:
        """A connection of the real connector, to a database that is made if there is none."""
        import snowflake.connector

        return snowflake.connector.connect(**{**self.parameters(database), **options})

    def url(self, database: str, *, password: str | None = PASSWORD, warehouse: str = WAREHOUSE) -> str:
        """The URL of a store or target: snowflake://USER:PASSWORD@ACCOUNT/DATABASE/SCHEMA with this server's address."""
        credentials = USER + ("" if password is None else f":{quote(password, safe='')}")
        options = f"warehouse={warehouse}&host=127.0.0.1&port={self.port}&protocol=http"
        return f"snowflake://{credentials}@emulator/{database}/PUBLIC?{options}"

    def new_database(self) -> str:
        """The URL of a database never used before; the first connection makes it."""
        return self.url(f"TEST_{next(self._numbers)}")

    # What a test may ask for and change

    def statements(self) -> list[SentStatement]:
        """Everything that clients sent, in order, with the query tag each statement had."""
        return [SentStatement(**each) for each in self._get("sent")]

    def state(self) -> dict[str, Any]:
        """Sessions, sign-ins, table kinds, changes to warehouses, and how many sessions wait for the write lock."""
        return dict(self._get("state"))

    def add_user(self, name: str, **ways: Any) -> None:
        """From the first user on, sign-ins are checked: ``password``, ``public_key`` (PEM) or ``oauth_token``."""
        self.command("user", name=name, **ways)

    def fail(
        self, match: str, *, number: int = 300002, sqlstate: str = "XX000", message: str = "injected", times: int = 1
    ) -> None:
        """The next statements whose text (or tag) matches a pattern fail with this number."""
        self.command("fault", action="fail", match=match, number=number, sqlstate=sqlstate, message=message, times=times)

    def delay(self, match: str, seconds: float, times: int = 1) -> None:
        self.command("fault", action="delay", match=match, seconds=seconds, times=times)

    def lie(self, match: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], times: int = 1) -> None:
        """Answer with these rows instead of running the statement."""
        self.command("fault", action="lie", match=match, columns=list(columns), rows=[list(row) for row in rows], times=times)

    def be_unavailable(self, match: str, times: int = 1) -> None:
        """Answer 503 without running the statement; the connector asks again."""
        self.command("fault", action="unavailable", match=match, times=times)

    def leave_unanswered(self, match: str, times: int = 1) -> None:
        """Run the statement and answer 503; the connector asks again and gets the first answer."""
        self.command("fault", action="unanswered", match=match, times=times)

    def queue(self, match: str, *, overload_ms: int = 0, provisioning_ms: int = 0, times: int = -1) -> None:
        """Put queue times into the history of statements that match."""
        given = {"queued_overload_ms": overload_ms, "queued_provisioning_ms": provisioning_ms}
        self.command("fault", action="queue", match=match, times=times, **given)

    def limit_warehouse(self, name: str = WAREHOUSE, *, slots: int, service_seconds: float) -> None:
        """Let a warehouse run so many statements at once and cluster, each for so long; others queue."""
        self.command("warehouse", name=name, slots=slots, service_seconds=service_seconds)

    def delay_history(self, *, live_seconds: float = 0.0, usage_seconds: float = 0.0, hold: str | None = None) -> None:
        """Let rows come late into QUERY_HISTORY; rows whose text contains ``hold`` stay out until ``release_history``."""
        self.command("history", live_delay=live_seconds, usage_delay=usage_seconds, hold=hold)

    def release_history(self) -> None:
        self.command("release_history")

    def forget(self) -> None:
        """Forget statements, history, users and faults; tables and warehouses stay."""
        self.command("forget")

    def command(self, do: str, **given: Any) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/emulator/command",
            data=json.dumps({"do": do, **given}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()

    def _get(self, what: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/emulator/{what}", timeout=30) as answer:
            return json.load(answer)

    # Inside

    def _furnish(self) -> None:
        installation()

    def _launched(self, port: int) -> subprocess.Popen[bytes]:
        command = [str(installation()), "-m", "servers.snowflake_shim", str(port)]
        return start(command, RunAs.ITSELF, self.log, {"PYTHONPATH": str(_TESTS), "PYTHONDONTWRITEBYTECODE": ""})

    def _is_ready(self, process: subprocess.Popen[bytes], port: int) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/emulator/state", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
