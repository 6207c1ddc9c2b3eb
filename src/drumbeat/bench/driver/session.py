"""One connection to PostgreSQL, made ready for load: connected, encrypted if asked, authenticated, every statement prepared."""

import os
import re
import socket
import ssl
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import parse_qsl, unquote, urlsplit

from drumbeat.bench.driver import pgwire
from drumbeat.bench.driver.blocks import OIDS, statement_name
from drumbeat.bench.driver.pgwire import Message, Scram, ServerSaid
from drumbeat.bench.model import Load
from drumbeat.core.errors import InvalidInput, InvalidSettings

PASSWORD_VARIABLE = "DRUMBEAT_TARGET_PASSWORD"  # noqa: S105  (the variable's name, not a password)
_TLS_MODES = ("disable", "prefer", "require", "verify-ca", "verify-full")
_REFUSED_LOGIN = ("28", "3D")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """Where a PostgreSQL server is and who we are there. Never shows the password."""

    host: str
    port: int
    user: str
    database: str
    password: str = field(default="", repr=False)
    tls: str = "prefer"
    tls_root: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def location(self) -> str:
        return f"postgresql://{self.host}:{self.port}/{self.database}"

    @property
    def is_local(self) -> bool:
        return self.host.startswith("/")


def address_of(url: str, environment: Mapping[str, str] = os.environ) -> PostgresAddress:
    """Read a postgresql:// URL. Raises InvalidSettings."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    tls = query.pop("sslmode", "prefer")
    if tls not in _TLS_MODES:
        raise InvalidSettings(f"expected sslmode to be one of {', '.join(_TLS_MODES)}, got {tls!r}")
    user = unquote(parts.username or query.pop("user", "") or environment.get("PGUSER", "postgres"))
    password = parts.password or environment.get(PASSWORD_VARIABLE) or environment.get("PGPASSWORD", "")
    return PostgresAddress(
        host=query.pop("host", "") or parts.hostname or "localhost",
        port=parts.port or int(query.pop("port", "5432")),
        user=user,
        database=unquote(parts.path.removeprefix("/")) or user,
        password=unquote(password),
        tls=tls,
        tls_root=query.pop("sslrootcert", None),
        options=query,
    )


@dataclass(slots=True)
class PostgresSession:
    """A connection that is ready for queries."""

    socket: socket.socket
    server_pid: int = 0
    server_key: int = 0
    server_version: str = ""

    def close(self) -> None:
        try:
            self.socket.setblocking(False)
            self.socket.send(pgwire.TERMINATE)
        except OSError:
            pass
        self.socket.close()


def open_session(address: PostgresAddress, load: Load, limit: timedelta) -> PostgresSession:
    """Connect and prepare; blocks, so it is called in threads.

    Raises OSError when the server cannot be reached, InvalidSettings when it will not have us, InvalidInput for a statement it
    does not understand, ServerSaid for what may pass (too many connections).
    """
    connection = _connect(address, limit)
    try:
        talk = _Talk(connection)
        session = PostgresSession(connection)
        _log_in(talk, address, session)
        _prepare_all(talk, load)
        connection.setblocking(False)
        session.socket = connection
    except BaseException:
        connection.close()
        raise
    return session


def cancel(address: PostgresAddress, session: PostgresSession, limit: timedelta) -> None:
    """Ask the server to stop what a session runs; blocks until it has heard. Raises OSError when it does not.

    A server that gave the session no key cannot be asked.
    """
    if not session.server_pid:
        return
    with _connect(address, limit) as connection:
        connection.sendall(pgwire.cancel(session.server_pid, session.server_key))
        connection.recv(1)


class _Talk:
    """A blocking conversation, message by message."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()
        self._messages: list[Message] = []

    def say(self, data: bytes) -> None:
        self._socket.sendall(data)

    def hear(self) -> Message:
        while not self._messages:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._buffer += data
            self._messages = list(pgwire.split(self._buffer))
        return self._messages.pop(0)

    def until_ready(self) -> Iterator[Message]:
        """Every message up to ReadyForQuery. Raises ServerSaid after it, if the server complained."""
        complaint: ServerSaid | None = None
        while (message := self.hear()).type != b"Z":
            if message.type == b"E":
                complaint = complaint or pgwire.error_of(message.body)
                if complaint.sqlstate[:2] in (*_REFUSED_LOGIN, "53", "57"):
                    raise complaint
            else:
                yield message
        if complaint:
            raise complaint


def _connect(address: PostgresAddress, limit: timedelta) -> socket.socket:
    seconds = limit.total_seconds()
    if address.is_local:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(seconds)
        connection.connect(f"{address.host}/.s.PGSQL.{address.port}")
        return connection
    connection = socket.create_connection((address.host, address.port), timeout=seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        return _encrypted(connection, address) if address.tls != "disable" else connection
    except BaseException:
        connection.close()
        raise


def _encrypted(connection: socket.socket, address: PostgresAddress) -> socket.socket:
    """Over to TLS if the server has it. Raises InvalidSettings when it was required and there is none, or is not trusted."""
    connection.sendall(pgwire.SSL_REQUEST)
    if connection.recv(1) != b"S":
        if address.tls == "prefer":
            return connection
        raise InvalidSettings(f"{address.location} has no TLS, and sslmode={address.tls} was asked for")
    try:
        return tls_context(address).wrap_socket(connection, server_hostname=address.host)
    except ssl.SSLCertVerificationError as exc:
        raise InvalidSettings(not_trusted(address, exc)) from exc


def not_trusted(address: PostgresAddress, exc: ssl.SSLCertVerificationError) -> str:
    root = f"the certificates in {address.tls_root}" if address.tls_root else "the system's certificates"
    return (
        f"{address.location} shows a certificate that {root} do not vouch for ({exc.verify_message}), "
        f"and sslmode={address.tls} was asked for; name the right root in sslrootcert"
    )


def tls_context(address: PostgresAddress) -> ssl.SSLContext:
    """How the server must prove who it is, by sslmode and sslrootcert. Raises InvalidSettings when there is no such root."""
    try:
        context = ssl.create_default_context(cafile=address.tls_root)
    except OSError as exc:
        raise InvalidSettings(f"sslrootcert: expected a file of certificates at {address.tls_root}: {exc}") from exc
    if address.tls != "verify-full":
        context.check_hostname = False
    if address.tls in ("prefer", "require") and address.tls_root is None:
        context.verify_mode = ssl.CERT_NONE
    return context


def _log_in(talk: _Talk, address: PostgresAddress, session: PostgresSession) -> None:
    talk.say(pgwire.startup(address.user, address.database, {"application_name": "drumbeat", **address.options}))
    scram = Scram(address.password)
    try:
        for message in talk.until_ready():
            if message.type == b"R":
                _authenticate(talk, message.body, address, scram)
            elif message.type == b"K":
                session.server_pid, session.server_key = struct.unpack("!ii", message.body[:8])
            elif message.type == b"S":
                name, value = message.body.split(b"\0")[:2]
                session.server_version = value.decode() if name == b"server_version" else session.server_version
    except ServerSaid as exc:
        if exc.sqlstate[:2] in _REFUSED_LOGIN:
            raise InvalidSettings(f"{address.location} will not have user {address.user!r}: {exc}") from exc
        raise


def _authenticate(talk: _Talk, body: bytes, address: PostgresAddress, scram: Scram) -> None:
    (way,) = struct.unpack_from("!i", body)
    if way == 0:
        return
    if way != 12 and not address.password:
        raise InvalidSettings(f"{address.location} asks for a password; give it in {PASSWORD_VARIABLE}")
    match way:
        case 3:
            talk.say(pgwire.clear_password(address.password))
        case 5:
            talk.say(pgwire.md5_password(address.user, address.password, body[4:8]))
        case 10:
            talk.say(scram.first())
        case 11:
            talk.say(scram.answer(body[4:]))
        case 12:
            scram.check(body[4:])
        case _:
            raise InvalidSettings(f"{address.location} asks for a way to log in that Drumbeat does not know ({way})")


def _prepare_all(talk: _Talk, load: Load) -> None:
    """Prepare every statement with the types its values are sent in. One that fails is named."""
    for number, operation in enumerate(load.used):
        for n, statement in enumerate(operation.statements):
            name = statement_name(number, n)
            talk.say(pgwire.parse(name, statement.sql, [OIDS[value.type] for value in statement.values]) + pgwire.SYNC)
            try:
                for _ in talk.until_ready():
                    pass
            except ServerSaid as exc:
                raise InvalidInput(f"{operation.kind}: {exc}; its SQL is: {one_line(statement.sql)}") from exc


def one_line(sql: str, longest: int = 200) -> str:
    flat = re.sub(r"\s+", " ", sql).strip()
    return flat if len(flat) <= longest else flat[:longest] + "…"


def statements_of(load: Load) -> Sequence[str]:
    return [one_line("; ".join(statement.sql for statement in operation.statements)) for operation in load.used]
