"""Opens connections to PostgreSQL for a load: connect, encrypt if asked, authenticate, prepare every statement."""

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
from drumbeat.bench.driver.pgwire import Message, PostgresError, Scram
from drumbeat.bench.model import Load
from drumbeat.core.errors import InvalidInput, InvalidSettings
from drumbeat.user_path import user_path

PASSWORD_VARIABLE = "DRUMBEAT_TARGET_PASSWORD"  # noqa: S105  (the variable's name, not a password)
_TLS_MODES = ("disable", "prefer", "require", "verify-ca", "verify-full")
_REFUSED_LOGIN = ("28", "3D")
_TEMPORARY = ("08", "40", "53", "55", "57")  #: classes of errors that say nothing about a statement: a later try may succeed


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """A PostgreSQL server's address, user, password and TLS settings. ``repr`` never shows the password."""

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
    def session_settings(self) -> Mapping[str, str]:
        """Settings of every session, also of Drumbeat's own: the time zone UTC, as timestamps are sent in UTC, and the options
        of the URL."""
        return {"TimeZone": "UTC", **self.options}

    @property
    def is_local(self) -> bool:
        return self.host.startswith("/")


def address_of(url: str, environment: Mapping[str, str] = os.environ) -> PostgresAddress:
    """Read a postgresql:// URL; environment variables supply a missing user or password, as they are: unlike the parts of the
    URL, they have no encoded characters such as %41. Raises InvalidSettings."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    tls = query.pop("sslmode", "prefer")
    if tls not in _TLS_MODES:
        raise InvalidSettings(f"expected the option sslmode to be one of {', '.join(_TLS_MODES)}, got {tls!r}")
    named = query.pop("user", "") or environment.get("PGUSER", "postgres")
    user = unquote(parts.username or "") or named
    password = unquote(parts.password or "") or environment.get(PASSWORD_VARIABLE) or environment.get("PGPASSWORD", "")
    root = query.pop("sslrootcert", None)
    return PostgresAddress(
        host=query.pop("host", "") or parts.hostname or "localhost",
        port=parts.port or int(query.pop("port", "5432")),
        user=user,
        database=unquote(parts.path.removeprefix("/")) or user,
        password=password,
        tls=tls,
        tls_root=root and str(user_path(root, "expected the path of a certificate in the option sslrootcert")),
        options=query,
    )


@dataclass(slots=True)
class PostgresSession:
    """An open connection to PostgreSQL with its statements prepared, and the key to cancel its operation."""

    socket: socket.socket
    server_pid: int = 0
    server_key: int = 0

    def close(self) -> None:
        try:
            self.socket.setblocking(False)
            self.socket.send(pgwire.TERMINATE)
        except OSError:
            pass
        self.socket.close()


def open_session(address: PostgresAddress, load: Load, limit: timedelta) -> PostgresSession:
    """Connect, log in and prepare the load's statements. Blocks, so call it in a thread.

    Raises OSError when the server cannot be reached, InvalidSettings when it refuses the login, InvalidInput for a statement
    that it rejects, PostgresError for temporary errors such as too many connections.
    """
    connection = _connect(address, limit)
    try:
        messages = _MessageSocket(connection)
        session = PostgresSession(connection)
        _log_in(messages, address, session)
        _prepare_all(messages, load)
        connection.setblocking(False)
        session.socket = connection
    except BaseException:
        connection.close()
        raise
    return session


def cancel(address: PostgresAddress, session: PostgresSession, limit: timedelta) -> None:
    """Ask the server to cancel the operation that a session runs. Blocks until the server has the request.

    Does nothing if the server gave the session no cancel key. Raises OSError if the server cannot be reached.
    """
    if not session.server_pid:
        return
    with _connect(address, limit) as connection:
        connection.sendall(pgwire.cancel(session.server_pid, session.server_key))
        connection.recv(1)


class _MessageSocket:
    """Sends and receives PostgreSQL protocol messages on a blocking socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()
        self._messages: list[Message] = []

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> Message:
        while not self._messages:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionResetError("the PostgreSQL server closed the connection before it was ready")
            self._buffer += data
            self._messages = list(pgwire.split(self._buffer))
        return self._messages.pop(0)

    def until_ready(self) -> Iterator[Message]:
        """Yield messages until the server is ready for queries. An error message is not yielded but raised (PostgresError)."""
        error: PostgresError | None = None
        while (message := self.receive()).type != b"Z":
            if message.type == b"E":
                error = error or pgwire.error_of(message.body)
                if error.sqlstate[:2] in (*_REFUSED_LOGIN, "53", "57"):
                    raise error
            else:
                yield message
        if error:
            raise error


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
    """Switch to TLS if the server supports it. Raises InvalidSettings if sslmode requires TLS but the server does not support
    it or its certificate is not trusted, OSError if the server answers neither yes nor no."""
    connection.sendall(pgwire.SSL_REQUEST)
    answer = connection.recv(1)
    if answer == b"N":
        if address.tls == "prefer":
            return connection
        raise InvalidSettings(f"{address.location} does not support TLS, but sslmode={address.tls} requires it")
    if answer != b"S":
        raise ConnectionResetError(f"{address.location} closed the connection when asked whether it supports TLS")
    try:
        return tls_context(address).wrap_socket(connection, server_hostname=address.host)
    except ssl.SSLCertVerificationError as exc:
        raise InvalidSettings(not_trusted(address, exc)) from exc


def not_trusted(address: PostgresAddress, exc: ssl.SSLCertVerificationError) -> str:
    root = f"the certificates in {address.tls_root}" if address.tls_root else "the system's certificates"
    return (
        f"{address.location} has a certificate that {root} do not verify ({exc.verify_message}), "
        f"but sslmode={address.tls} requires it; set sslrootcert to the right root certificate"
    )


def tls_context(address: PostgresAddress) -> ssl.SSLContext:
    """Return a TLS context that checks the certificate as sslmode says. Raises InvalidSettings if sslrootcert is missing."""
    try:
        context = ssl.create_default_context(cafile=address.tls_root)
    except OSError as exc:
        raise InvalidSettings(f"sslrootcert: expected a certificate file at {address.tls_root}: {exc}") from exc
    if address.tls != "verify-full":
        context.check_hostname = False
    if address.tls in ("prefer", "require") and address.tls_root is None:
        context.verify_mode = ssl.CERT_NONE
    return context


def _log_in(messages: _MessageSocket, address: PostgresAddress, session: PostgresSession) -> None:
    messages.send(pgwire.startup(address.user, address.database, {"application_name": "drumbeat", **address.session_settings}))
    scram = Scram(address.password)
    try:
        for message in messages.until_ready():
            if message.type == b"R":
                _authenticate(messages, message.body, address, scram)
            elif message.type == b"K":
                session.server_pid, session.server_key = struct.unpack("!ii", message.body[:8])
    except PostgresError as exc:
        if exc.sqlstate[:2] in _REFUSED_LOGIN:
            raise InvalidSettings(f"{address.location} refused user {address.user!r}: {exc}") from exc
        raise


def _authenticate(messages: _MessageSocket, body: bytes, address: PostgresAddress, scram: Scram) -> None:
    (method,) = struct.unpack_from("!i", body)
    if method == 0:
        return
    if method != 12 and not address.password:
        raise InvalidSettings(f"{address.location} asks for a password; set {PASSWORD_VARIABLE}")
    match method:
        case 3:
            messages.send(pgwire.clear_password(address.password))
        case 5:
            messages.send(pgwire.md5_password(address.user, address.password, body[4:8]))
        case 10:
            messages.send(scram.first())
        case 11:
            messages.send(scram.answer(body[4:]))
        case 12:
            scram.check(body[4:])
        case _:
            raise InvalidSettings(f"{address.location} asks for an unsupported authentication method ({method}); use SCRAM")


def _prepare_all(messages: _MessageSocket, load: Load) -> None:
    """Prepare every statement with the types of its values. Raises InvalidInput, which names the invalid statement."""
    for number, operation in enumerate(load.used):
        for n, statement in enumerate(operation.statements):
            name = statement_name(number, n)
            messages.send(pgwire.parse(name, statement.sql, [OIDS[value.type] for value in statement.values]) + pgwire.SYNC)
            try:
                for _ in messages.until_ready():
                    pass
            except PostgresError as exc:
                if exc.sqlstate[:2] in _TEMPORARY:
                    raise
                raise InvalidInput(f"operation {operation.kind}: {exc} in the SQL: {one_line(statement.sql)}") from exc


def one_line(sql: str, longest: int = 200) -> str:
    flat = re.sub(r"\s+", " ", sql).strip()
    return flat if len(flat) <= longest else flat[:longest] + "…"


def statements_of(load: Load) -> Sequence[str]:
    return [one_line("; ".join(statement.sql for statement in operation.statements)) for operation in load.used]
