"""A login on an SSH host and the agent program that it starts there. Each error becomes one clear line."""

import asyncio
import contextlib
import getpass
import json
import logging
import shlex
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, Self

from drumbeat.core.errors import MissingExtra, SpawnCause, SpawnError, Unanswered
from drumbeat.spawn.ssh.agent import BOOT
from drumbeat.spawn.ssh.settings import WORKER_PYTHON, SshHost, SshSettings

try:
    import asyncssh
except ImportError as exc:
    raise MissingExtra("the SSH spawner", "ssh") from exc

log = logging.getLogger(__name__)

_MODULES = ("agent_host", "agent_records", "agent_supervisor", "agent")  #: sent to the host in this order
_PROGRAM = json.dumps({f"{__package__}.{name}": Path(__file__).with_name(f"{name}.py").read_text("utf-8") for name in _MODULES})
_USUAL_KNOWN_HOSTS = Path("~/.ssh/known_hosts")
_SSH_PORT = 22
_KEEPALIVE_SECONDS = 5
_KEEPALIVES = 3  #: number of keepalives without an answer after which the connection counts as lost

Answer = Mapping[str, Any]


class AgentRefused(SpawnError):
    """The agent on a host could not serve a request; ``kind`` says why."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _Channel(asyncssh.SSHClientSession[str]):
    """Reads the agent's answers, which are lines of JSON, and passes each to the request that waits for it."""

    def __init__(self) -> None:
        self.hello: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.waiting: dict[int, asyncio.Future[Answer]] = {}
        self.lost: str | None = None
        self._text, self._complaint = "", ""
        self._status: int | None = None

    def data_received(self, data: str, datatype: asyncssh.DataType) -> None:
        if datatype is not None:
            self._complaint = (self._complaint + data)[-10_000:]
            return
        *lines, self._text = (self._text + data).split("\n")
        for line in lines:
            self._deliver(line)

    def exit_status_received(self, status: int) -> None:
        self._status = status

    def connection_lost(self, exc: Exception | None) -> None:
        lines = [line for line in (self._complaint + self._text).splitlines() if line.strip()]
        said = f": {lines[-1].strip()}" if lines else f": {exc}" if exc else ""
        ended = "the connection was lost" if self._status is None else f"the agent ended with code {self._status}"
        self.lost = f"{ended}{said}"
        for future in (self.hello, *self.waiting.values()):
            if not future.done():
                future.set_exception(ConnectionError(self.lost))
        if not self.hello.cancelled():
            self.hello.exception()  # so that asyncio does not complain if nobody awaits it

    @property
    def ended_by_itself(self) -> bool:
        """Whether the agent exited by itself. False if it was killed or the connection broke: then there is no exit status."""
        return self._status is not None

    def _deliver(self, line: str) -> None:
        try:
            answer = json.loads(line)
            future = self.waiting.pop(answer["id"], None) if "id" in answer else self.hello
        except (ValueError, KeyError, TypeError):
            self._complaint += f"{line}\n"  # a login script that prints something
            return
        if future is not None and not future.done():
            future.set_result(answer)


class AgentSession:
    """An open connection to a host, and the agent that runs there as long as the connection is open."""

    def __init__(
        self, host: SshHost, connection: asyncssh.SSHClientConnection, channel: asyncssh.SSHClientChannel[str], reader: _Channel
    ) -> None:
        self._host, self._connection, self._channel, self._reader = host, connection, channel, reader
        self._ids = count(1)

    @classmethod
    async def open(cls, host: SshHost, settings: SshSettings, scope: str) -> Self:
        """Log in and start an agent. Raises Unanswered with the reason in one line."""
        with _translated(host, settings):
            async with asyncio.timeout(settings.connect_timeout.total_seconds()):
                connection = await asyncssh.connect(
                    host.address or host.name, host.port, config=None, options=_options(host, settings)
                )
                try:
                    return await cls._start_agent(host, settings, scope, connection)
                except BaseException:
                    connection.abort()
                    raise

    @classmethod
    async def _start_agent(
        cls, host: SshHost, settings: SshSettings, scope: str, connection: asyncssh.SSHClientConnection
    ) -> Self:
        python = settings.python_of(host)
        command = f"exec {_quoted(python)} -I -S -c {shlex.quote(BOOT)}"
        reader = _Channel()
        channel, _ = await connection.create_session(lambda: reader, command, encoding="utf-8", errors="replace")
        task = {"be": "serve", "folder": settings.folder_of(host), "scope": scope}
        channel.write(f"{len(_PROGRAM)}\n{_PROGRAM}{json.dumps(task)}\n")
        try:
            hello = await reader.hello
        except ConnectionError as exc:
            needed = ".".join(map(str, WORKER_PYTHON))
            advice = f"set python to the path of Python {needed} or newer there: workers need it (the agent needs only 3.8)"
            cause = SpawnCause.BAD_REQUEST if reader.ended_by_itself else SpawnCause.TRANSIENT
            message = f"{host.place}: could not start the agent with {python!r}: {exc}"
            raise Unanswered(f"{message}; {advice}" if reader.ended_by_itself else message, cause=cause) from exc
        if "trouble" in hello:
            message = f"{host.place}: {hello['message']}; choose another folder, or let its user write there"
            raise Unanswered(message, cause=SpawnCause.BAD_REQUEST)
        return cls(host, connection, channel, reader)

    @property
    def is_open(self) -> bool:
        return self._reader.lost is None

    async def ask(self, request: Mapping[str, Any], timeout_seconds: float) -> Answer:
        """Send a request and return its answer. Raises AgentRefused, ConnectionError, TimeoutError."""
        if self._reader.lost is not None:
            raise ConnectionError(self._reader.lost)
        number, answered = next(self._ids), asyncio.get_running_loop().create_future()
        self._reader.waiting[number] = answered
        try:
            self._channel.write(json.dumps({**request, "id": number}) + "\n")
            async with asyncio.timeout(timeout_seconds):
                answer: Answer = await answered
        except TimeoutError:
            self._connection.abort()
            raise
        finally:
            self._reader.waiting.pop(number, None)
        if "trouble" in answer:
            raise AgentRefused(answer["trouble"], answer["message"])
        return answer

    async def close(self) -> None:
        """Close the connection. The agent finishes its current requests and exits; workers keep running."""
        if self._reader.lost is None:
            self._channel.write_eof()
        self._connection.close()
        with contextlib.suppress(OSError, asyncssh.Error):
            await self._connection.wait_closed()


def _options(host: SshHost, settings: SshSettings) -> asyncssh.SSHClientConnectionOptions:
    """Return the options for asyncssh's login. Raises Unanswered if the key file cannot be read."""
    keys: dict[str, Any] = {} if settings.key_file is None else {"client_keys": [str(settings.key_file.expanduser())]}
    try:
        return asyncssh.SSHClientConnectionOptions(
            username=host.user or getpass.getuser(),
            known_hosts=_known_hosts(settings) if settings.verify_host_keys else None,
            keepalive_interval=_KEEPALIVE_SECONDS,
            keepalive_count_max=_KEEPALIVES,
            config=None,
            **keys,
            **({} if settings.ssh_agent else {"agent_path": None}),
        )
    except (OSError, asyncssh.KeyImportError, ValueError) as exc:
        message = f"{host.place}: cannot use the key file {settings.key_file}: {exc}"
        raise Unanswered(f"{message}; name a private key without passphrase, or set ssh_agent", cause=SpawnCause.AUTH) from exc


@contextlib.contextmanager
def _translated(host: SshHost, settings: SshSettings) -> Iterator[None]:
    """Convert the errors of a login to ``Unanswered`` with one clear line."""
    try:
        yield
    except asyncssh.HostKeyNotVerifiable as exc:
        raise Unanswered(f"{host.place}: {_key_problem(host, settings)}", cause=SpawnCause.AUTH) from exc
    except asyncssh.PermissionDenied as exc:
        user, key = host.user or getpass.getuser(), settings.key_file or "the usual keys"
        raise Unanswered(
            f"{host.place}: the host refuses user {user} with {key}; add the public key to its authorized_keys",
            cause=SpawnCause.AUTH,
        ) from exc
    except TimeoutError as exc:
        seconds = settings.connect_timeout.total_seconds()
        raise Unanswered(f"{host.place}: no answer within {seconds:g} s; check that the host is up") from exc
    except OSError as exc:
        reason = (exc.strerror or str(exc)).lower()
        raise Unanswered(f"{host.place}: {reason}; check that the host is up and an SSH server listens there") from exc
    except asyncssh.Error as exc:
        raise Unanswered(f"{host.place}: {exc.reason}; check that an SSH server listens there") from exc
    except ValueError as exc:
        file = settings.known_hosts or _USUAL_KNOWN_HOSTS
        raise Unanswered(f"{host.place}: cannot use {file}: {exc}; correct it", cause=SpawnCause.AUTH) from exc


def _known_hosts(settings: SshSettings) -> bytes:
    """Return the known hosts, without lines that cannot be read. Raises Unanswered if the file cannot be read."""
    path = (settings.known_hosts or _USUAL_KNOWN_HOSTS).expanduser()
    try:
        return _readable(path, path.read_bytes()) if path.is_file() else b"\n"
    except OSError as exc:
        raise Unanswered(f"cannot read the known hosts {path}: {exc.strerror}; correct it", cause=SpawnCause.AUTH) from exc


@lru_cache(maxsize=4)
def _readable(path: Path, text: bytes) -> bytes:
    """Return the lines of a file of known hosts that asyncssh can read; the others are named in a warning, once."""
    lines = text.splitlines()
    good = [line for number, line in enumerate(lines, 1) if _is_readable(path, number, line)]
    return b"\n".join([*good, b""]) or b"\n"


def _is_readable(path: Path, number: int, line: bytes) -> bool:
    try:
        asyncssh.import_known_hosts(line.decode())
    except ValueError as exc:
        log.warning("ignoring line %d of %s, which is not a known host: %s; correct or delete it", number, path, exc)
        return False
    return True


def _key_problem(host: SshHost, settings: SshSettings) -> str:
    """Say whether a host key that was not accepted is unknown or has changed, and what to do."""
    address, file = host.address or host.name, settings.known_hosts or _USUAL_KNOWN_HOSTS
    keys, authorities, *_ = asyncssh.match_known_hosts(_known_hosts(settings), address, "", _port(host))
    scan = f"ssh-keyscan -p {host.port} {address} >> {file}"
    if not keys and not authorities:
        return (
            f"its host key is not known: {file} has no key of this host; make sure that it is the right host, then add its "
            f"key: {scan}"
        )
    entry = address if host.port == _SSH_PORT else f"[{address}]:{host.port}"
    return (
        f"its host key has changed: it is not the one in {file}. Somebody might be reading the connection, or the host was "
        f"installed again. Only if you know that it was, remove the old key: ssh-keygen -f {file} -R {shlex.quote(entry)}; "
        f"and add the new one: {scan}"
    )


def _port(host: SshHost) -> int | None:
    return None if host.port == _SSH_PORT else host.port


def _quoted(program: str) -> str:
    """Quote a program for the host's shell; a leading ~/ still stands for the home folder."""
    return '"$HOME"/' + shlex.quote(program[2:]) if program.startswith("~/") else shlex.quote(program)
