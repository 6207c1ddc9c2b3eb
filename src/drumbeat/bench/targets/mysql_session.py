"""Opens connections to MySQL or MariaDB for a load: connect, encrypt if asked, prepare every statement."""

import logging
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from drumbeat.bench.driver.records import FAILED, LOST, TIMED_OUT
from drumbeat.bench.driver.session import PASSWORD_VARIABLE
from drumbeat.bench.driver.session_kinds import OperationFailure, Values
from drumbeat.bench.targets.placeholders import OperationScript, OperationStep
from drumbeat.core.errors import InvalidInput, InvalidSettings, MissingExtra
from drumbeat.user_path import user_path

log = logging.getLogger(__name__)

TLS_MODES = ("DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")
_PATHS = ("ssl-ca", "ssl-cert", "ssl-key", "unix-socket")
_OPTIONS = ("ssl-mode", *_PATHS)
_DENIED = 1045
_REFUSED = frozenset({1044, 1045, 1049, 1698, 3118, 2059})  #: wrong user, password or database; unsupported authentication
_LOST = frozenset({0, 1053, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 2003, 2006, 2013, 2014, 2055, 4031})
_TIMED_OUT = frozenset({1317, 1969, 3024})  #: codes: interrupted, max_statement_time or max_execution_time exceeded
_UNKNOWN_VARIABLE = 1193
_FIRST_BUFFER = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class MysqlAddress:
    """A MySQL server's address, user, password and TLS settings. ``repr`` never shows the password."""

    host: str
    port: int
    user: str
    database: str
    password: str = field(default="", repr=False)
    unix_socket: str | None = None
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @property
    def location(self) -> str:
        return f"mysql://{self.unix_socket or f'{self.host}:{self.port}'}/{self.database}"


def address_of(url: str, environment: Mapping[str, str] = os.environ) -> MysqlAddress:
    """Read a mysql:// URL; an environment variable supplies a missing password. Raises InvalidSettings."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    if unknown := set(options) - set(_OPTIONS):
        raise InvalidSettings(f"the target's URL has an unknown option {min(unknown)!r}; expected one of {', '.join(_OPTIONS)}")
    for name in options.keys() & set(_PATHS):
        options[name] = str(user_path(options[name], f"expected a path in the option {name}"))
    database = unquote(parts.path.removeprefix("/"))
    if not database:
        raise InvalidSettings("expected mysql://USER@HOST/DATABASE, got no database in the target's URL")
    return MysqlAddress(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=unquote(parts.username or "root"),
        database=database,
        password=unquote(parts.password or "") or environment.get(PASSWORD_VARIABLE, ""),
        unix_socket=options.get("unix-socket"),
        tls=_tls(options),
    )


def _tls(options: Mapping[str, str]) -> ssl.SSLContext | None:
    mode = options.get("ssl-mode", "VERIFY_CA" if "ssl-ca" in options else "DISABLED").upper()
    if mode not in TLS_MODES:
        raise InvalidSettings(f"expected the option ssl-mode to be one of {', '.join(TLS_MODES)}, got {mode!r}")
    if mode == "DISABLED":
        return None
    try:
        context = ssl.create_default_context(cafile=options.get("ssl-ca"))
        if "ssl-cert" in options:
            context.load_cert_chain(options["ssl-cert"], options.get("ssl-key"))
    except OSError as exc:
        raise InvalidSettings(f"cannot read the files named by ssl-ca, ssl-cert or ssl-key: {exc}") from exc
    context.check_hostname = mode == "VERIFY_IDENTITY"
    context.verify_mode = ssl.CERT_NONE if mode == "REQUIRED" else ssl.CERT_REQUIRED
    return context


def driver() -> Any:
    try:
        import asyncmy
    except ImportError as exc:
        raise MissingExtra("a MySQL or MariaDB database under test", "mysql") from exc
    return asyncmy


async def connect(address: MysqlAddress, limit: timedelta) -> Any:
    """Open a connection with autocommit. Raises InvalidSettings if the login is refused, OperationFailure on other errors."""
    asyncmy = driver()
    try:
        return await asyncmy.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password.encode(),
            database=address.database,
            unix_socket=address.unix_socket,
            ssl=address.tls,
            connect_timeout=limit.total_seconds(),
            autocommit=True,
            local_infile=False,  # the server must never get a file of this machine by LOAD DATA LOCAL
            program_name="drumbeat",
            stmt_cache_size=8,
        )
    except asyncmy.MySQLError as exc:
        if code_of(exc) in _REFUSED:
            needs_hint = not address.password and code_of(exc) == _DENIED
            hint = f"; if a password is needed, set {PASSWORD_VARIABLE}" if needs_hint else ""
            raise InvalidSettings(f"{address.location} refused user {address.user!r}: {message_of(exc)}{hint}") from exc
        raise OperationFailure(
            LOST, str(code_of(exc) or ""), f"cannot connect to {address.location}: {message_of(exc)}"
        ) from exc
    except RuntimeError as exc:
        raise InvalidSettings(f"cannot log in at {address.location}: {exc}") from exc


class MysqlSession:
    """One connection that runs a load's operations. Statements are prepared, so values need no quoting."""

    def __init__(self, connection: Any, scripts: Sequence[OperationScript], statements: Sequence[Sequence[Any]]) -> None:
        self._connection = connection
        self._scripts = scripts
        self._statements = statements
        self._errors = driver().MySQLError

    async def execute(self, operation: int, values: Values) -> int:
        script, statements = self._scripts[operation], self._statements[operation]
        if script.is_transaction:
            return await self._transact(script, statements, values)
        return await self._run(script.steps[0], statements[0], values)

    def interrupt(self) -> None:
        self._connection.close()

    async def close(self) -> None:
        await self._connection.ensure_closed()

    async def _run(self, step: OperationStep, statement: Any, values: Values) -> int:
        try:
            result = await statement.execute(step.arguments(values[step.index]))
        except self._errors as exc:
            raise failure_of(exc, step.index) from exc
        return result.affected_rows if result.rows is None else len(result.rows)

    async def _transact(self, script: OperationScript, statements: Sequence[Any], values: Values) -> int:
        try:
            await self._connection.begin()
            rows = 0
            for step, statement in zip(script.steps, statements, strict=True):
                rows += await self._run(step, statement, values)
            await self._connection.commit()
        except self._errors as exc:
            raise await self._rolled_back(failure_of(exc, 0)) from exc
        except OperationFailure as failure:
            raise await self._rolled_back(failure) from failure.__cause__
        return rows

    async def _rolled_back(self, failure: OperationFailure) -> OperationFailure:
        if not failure.lost:
            try:
                await self._connection.rollback()
            except self._errors:
                failure.lost = True
        return failure


async def open_session(
    address: MysqlAddress,
    scripts: Sequence[OperationScript],
    limit: timedelta,
    connect_limit: timedelta,
    *,
    cached_results: bool = True,
) -> MysqlSession:
    """Connect and prepare all statements. ``cached_results=False`` bypasses the server's query cache, if it has one."""
    connection = await connect(address, connect_limit)
    try:
        _shrink(connection)
        await _set_limit(connection, limit)
        if not cached_results:
            await _bypass_cache(connection)
        return MysqlSession(connection, scripts, await prepare_statements(connection, scripts))
    except BaseException:
        connection.close()
        raise


def _shrink(connection: Any) -> None:
    """Replace asyncmy's read buffer of 256 KiB per connection by a smaller one; it grows as needed."""
    protocol = getattr(connection, "_proto", None)
    if protocol is not None and isinstance(getattr(protocol, "buffer", None), bytearray) and protocol.pos == protocol.length:
        protocol.buffer, protocol.pos, protocol.length = bytearray(_FIRST_BUFFER), 0, 0


async def prepare_statements(connection: Any, scripts: Sequence[OperationScript]) -> list[list[Any]]:
    """Prepare every statement on the server. Raises InvalidInput, which names the invalid operation."""
    return [[await _prepared(connection, script.kind, step) for step in script.steps] for script in scripts]


async def _prepared(connection: Any, kind: str, step: OperationStep) -> Any:
    try:
        statement = await connection.prepare(step.sql)
    except driver().MySQLError as exc:
        failure = failure_of(exc, step.index)
        if failure.lost:
            raise failure from exc
        raise InvalidInput(f"operation {kind}: {message_of(exc)} in the SQL: {step.sql}") from exc
    if statement.parameter_count != len(step.order):
        counts = f"expected {len(step.order)} placeholders, got {statement.parameter_count}"
        raise InvalidInput(f"operation {kind}: {counts} in the SQL: {step.sql}")
    return statement


async def _set_limit(connection: Any, limit: timedelta) -> None:
    """Set the server's own statement timeout: MariaDB applies it to all statements, MySQL only to reads."""
    seconds = limit.total_seconds()
    is_mariadb = "MariaDB" in connection.get_server_info()
    setting = f"max_statement_time = {seconds:.3f}" if is_mariadb else f"max_execution_time = {max(1, round(seconds * 1000))}"
    if not await _set_session(connection, setting):
        log.info("the server does not support the setting %s; only this client enforces the query timeout", setting)


async def _bypass_cache(connection: Any) -> None:
    """Turn off the query cache of MariaDB and of MySQL up to 5.7. Other servers have none and reject the setting."""
    await _set_session(connection, "query_cache_type = OFF")


async def _set_session(connection: Any, setting: str) -> bool:
    """Apply a session setting. Returns False if the server does not know the setting. Raises OperationFailure."""
    try:
        await connection.query(f"SET SESSION {setting}")
    except driver().MySQLError as exc:
        if code_of(exc) != _UNKNOWN_VARIABLE:
            raise failure_of(exc, 0) from exc
        return False
    return True


def failure_of(error: Exception, index: int) -> OperationFailure:
    code = code_of(error)
    outcome = LOST if code is None or code in _LOST else TIMED_OUT if code in _TIMED_OUT else FAILED
    return OperationFailure(outcome, str(code or ""), message_of(error), statement=index)


def code_of(error: Exception) -> int | None:
    """Return the MySQL error number of an exception; None if it has none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else None


def message_of(error: Exception) -> str:
    return str(error.args[-1]) if error.args else type(error).__name__
