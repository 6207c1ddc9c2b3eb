"""Settings: which hosts run workers over SSH, with how many slots, and how to log in."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from drumbeat.core.errors import InvalidSettings

WORKER_PYTHON = (3, 11)  #: the oldest Python for workers; for the agent, which starts them, 3.8 is enough
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SshHost:
    """A Linux host on which workers run. Workers need Drumbeat and Python 3.11 or newer there; the agent, which starts them,
    needs only Python 3.8."""

    name: str  #: the first part of the refs of its instances; must not change while workers run there
    address: str = ""  #: host name or IP address; empty: ``name``
    port: int = 22  #: of the SSH server
    user: str = ""  #: empty: the user of this process
    slots: int = 1  #: how many workers may run there at once, of all stores together
    labels: Mapping[str, str] = field(default_factory=dict)  #: what the host has, such as gpu = "a100"
    price_per_hour: float = 0.0  #: of one worker
    python: str = ""  #: overrides the setting for all hosts
    folder: str = ""  #: overrides the setting for all hosts

    def __post_init__(self) -> None:
        """Raise InvalidSettings if no worker can run on such a host."""
        if not _NAME.fullmatch(self.name):
            raise InvalidSettings(f"SSH host: expected a name of letters, digits, dots and dashes, got {self.name!r}")
        for fails, expected_and_got in (
            (self.slots < 1, f"slots of 1 or more, got {self.slots}"),
            (not 0 < self.port < 65_536, f"a port from 1 to 65535, got {self.port}"),
            (self.price_per_hour < 0, f"a price_per_hour of 0 or more, got {self.price_per_hour}"),
        ):
            if fails:
                raise InvalidSettings(f"SSH host {self.name}: expected {expected_and_got}")

    @property
    def place(self) -> str:
        """Return the host as error messages show it: name and address."""
        return f"host {self.name} ({self.address or self.name}:{self.port})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SshSettings:
    """The hosts on which workers run, and how to log in there. Keys are read from files or an SSH agent, never stored here."""

    hosts: Sequence[SshHost]  #: the hosts, each as a table: [[engines.NAME.hosts]]
    labels: Mapping[str, str] = field(default_factory=dict)  #: workers are started only on hosts that have all of these
    key_file: Path | None = None  #: a private key without passphrase; None: the SSH agent's keys and the usual files
    ssh_agent: bool = True  #: whether keys of the SSH agent (SSH_AUTH_SOCK) may be used
    known_hosts: Path | None = None  #: the file with the hosts' keys; None: ~/.ssh/known_hosts
    verify_host_keys: bool = True  #: False: any host key is accepted; then an attacker can read the store's password
    python: str = "python3"  #: the hosts' Python, 3.11 or newer, with Drumbeat; the agent that starts the workers uses it too
    command: Sequence[str] = ()  #: precedes the worker's arguments; empty: PYTHON -m drumbeat worker
    folder: str = "~/.drumbeat/ssh"  #: the folder on the hosts for logs and records
    connect_timeout: timedelta = timedelta(seconds=10)  #: of logging in
    timeout: timedelta = timedelta(seconds=30)  #: of one request
    max_backoff: timedelta = timedelta(minutes=1)  #: the longest time for which a host that is down is not asked again
    settle: timedelta = timedelta(seconds=15)  #: after a start without an answer: how long its worker may still appear
    usual_start: timedelta = timedelta(seconds=1)  #: typical time until a worker runs
    billing_granule: timedelta = timedelta(seconds=1)  #: the unit of time in which hosts are paid

    def __post_init__(self) -> None:
        """Raise InvalidSettings if no worker can be started with these settings."""
        names = [host.name for host in self.hosts]
        if not names:
            raise InvalidSettings("SSH: expected at least one host, got none")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InvalidSettings(f"SSH: expected each host once, got {', '.join(twice)} more than once")
        if not self.chosen_hosts:
            raise InvalidSettings(f"SSH: expected a host with the labels {dict(self.labels)}, but no host has them")
        for what, path in (("key_file", self.key_file), ("known_hosts", self.known_hosts)):
            if path is not None and not path.expanduser().is_file():
                raise InvalidSettings(f"SSH: expected {what} to name a file, but there is no file {path}")

    @property
    def chosen_hosts(self) -> Sequence[SshHost]:
        """Return the hosts that have all required labels."""
        return [host for host in self.hosts if self.labels.items() <= host.labels.items()]

    def python_of(self, host: SshHost) -> str:
        return host.python or self.python

    def folder_of(self, host: SshHost) -> str:
        return host.folder or self.folder

    def command_of(self, host: SshHost) -> tuple[str, ...]:
        """Return the command that precedes a worker's arguments on this host."""
        return tuple(self.command) or (self.python_of(host), "-m", "drumbeat", "worker")
