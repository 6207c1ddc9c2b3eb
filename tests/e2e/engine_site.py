"""A folder with engines.toml and a store, in which the ordinary commands are run."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cli.given import COMMAND, Said, environment, eventually, ran, started
from servers.openssh import OpenSshServer

ENGINE = """
[engines.{engine}]
kind = "ssh"
key_file = "{key}"
known_hosts = "{known}"
ssh_agent = false
python = "{python}"
connect_timeout = "{patience}"
timeout = "{patience}"
"""
HOST = """
[[engines.{engine}.hosts]]
name = "{name}"
address = "{address}"
port = {port}
user = "{user}"
slots = {slots}
price_per_hour = 0.1
folder = "{folder}/{name}"
"""


class Site:
    """A folder with engines.toml, the store that its commands use, and one of its engines."""

    def __init__(self, folder: Path, store: str, engine: str = "cluster", **variables: str) -> None:
        self.folder, self.store, self.engine = folder, store, engine
        self.variables = {"DRUMBEAT_STORE": store, **variables}

    def attempt(self, *words: str, **variables: str) -> Said:
        return ran(*words, cwd=self.folder, **(self.variables | variables))

    def run(self, *words: str) -> Said:
        done = self.attempt(*words)
        assert done.code == 0, (words, done.output, done.errors)
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json").output)

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        with started(*words, cwd=self.folder, **self.variables) as process:
            yield process

    @property
    def running(self) -> list[dict[str, Any]]:
        """The workers that the engine itself knows of."""
        found: list[dict[str, Any]] = self.json("engine", "workers", self.engine)["workers"]
        return found

    def push(self, pool: str, count: int) -> None:
        lines = "".join(json.dumps({"n": n}) + "\n" for n in range(count))
        command = (*COMMAND, "pool", "push", pool, "-")
        subprocess.run(command, input=lines, text=True, check=True, cwd=self.folder, env=environment(**self.variables))

    def done(self, pool: str) -> int:
        return int(self.json("pool", "status", pool)["jobs"]["done"])

    def check_until_done(self, pool: str, count: int) -> None:
        """Run checks, as cron would, until all jobs are done; a check may fail while a host does not answer."""

        def is_done() -> bool:
            self.attempt("pool", "check", pool)
            return self.done(pool) == count

        eventually(is_done, f"{count} jobs of {pool} are done")

    def statuses(self, pool: str) -> list[str]:
        """The states of the pool's workers."""
        return [each["status"] for each in self.json("workers", "list", pool)]

    def places(self, pool: str) -> set[str]:
        """The hosts on which the pool's workers were."""
        return {str(each["meta"]["host"]) for each in self.json("workers", "list", pool) if "host" in each["meta"]}


def write_ssh_engine(
    folder: Path, servers: Sequence[OpenSshServer], *, engine: str = "cluster", slots: int = 3, patience: str = "2m"
) -> None:
    """Write engines.toml with an engine on these servers, the hosts node1, node2 and so on."""
    known = folder / "known_hosts"
    known.write_text("".join(server.known_hosts.read_text() for server in servers))
    key = folder / "client_key"
    key.write_bytes(servers[0].key_file.read_bytes())
    key.chmod(0o600)
    for server in servers:
        (server.folder / "authorized_keys").write_text(servers[0].key_file.with_suffix(".pub").read_text())
    hosts = [
        HOST.format(
            engine=engine,
            name=f"node{number}",
            address=server.address,
            port=server.port,
            user=server.user,
            slots=slots,
            folder=folder,
        )
        for number, server in enumerate(servers, 1)
    ]
    text = ENGINE.format(engine=engine, key=key, known=known, python=sys.executable, patience=patience)
    (folder / "engines.toml").write_text(text + "".join(hosts))
