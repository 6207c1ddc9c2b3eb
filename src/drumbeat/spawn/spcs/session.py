"""Sends statements to Snowflake through its connector. The connector's calls block, so each thread has its own session.

Statements have no parameters: the connector would insert the values itself, or send them in a way that statements about
services do not support. So ``statements`` writes names and texts, quoted, into the statement. No statement contains a secret.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, Protocol

from drumbeat.core.clock import Clock
from drumbeat.core.errors import MissingExtra, SpawnCause, SpawnError, Unanswered
from drumbeat.spawn.spcs.problems import NotSubmitted, SpcsRefused, cause_of, one_line, refusal
from drumbeat.spawn.spcs.settings import SpcsSettings
from drumbeat.spawn.spcs.statements import Row

if find_spec("snowflake") is None or find_spec("snowflake.connector") is None:
    raise MissingExtra("the SPCS spawner", "snowflake")

log = logging.getLogger(__name__)

_LOGOUT_SECONDS = 3  #: how long a logout may take; Snowflake ends the session later anyway
_CANNOT_CONNECT = 250_001  #: the connector's number for a failed sign-in; with the SQL state 08… it found no network
_RETRY_PAUSES = (timedelta(milliseconds=500), timedelta(seconds=2))  #: pauses before the first and second retry


class SpcsSession(Protocol):
    """One session with Snowflake. It runs one statement at a time, and its methods block."""

    def execute(self, statement: str) -> Sequence[Row]:
        """Run a statement and return its rows. Raises errors of the connector."""
        ...

    def close(self) -> None: ...


Connect = Callable[[SpcsSettings], SpcsSession]  #: signs in


class ConnectorSession:
    """A session of Snowflake's connector."""

    def __init__(self, connection: Any, rows_as_tables: Any) -> None:
        self._connection = connection
        self._cursor_class = rows_as_tables

    def execute(self, statement: str) -> Sequence[Row]:
        with self._connection.cursor(self._cursor_class) as cursor:
            cursor.execute(statement)
            return [{str(name).lower(): value for name, value in row.items()} for row in cursor.fetchall()]

    def close(self) -> None:
        self._connection.close()


def sign_in(settings: SpcsSettings) -> SpcsSession:
    """Open a session with the settings' credentials. Raises errors of the connector, NotSubmitted if a secret is missing."""
    import snowflake.connector

    seconds = int(settings.timeout.total_seconds())
    options = {
        "account": settings.account,
        "user": settings.user,
        "role": settings.role,
        "host": settings.host,
        **credentials(settings, os.environ),
    }
    connection = snowflake.connector.connect(
        **{name: value for name, value in options.items() if value},
        port=settings.port,
        protocol=settings.protocol,
        login_timeout=seconds,
        request_timeout=seconds,
        application="drumbeat",
        enable_server_session_keep_alive_auto_detection=False,
        logout_max_attempts=1,
        logout_total_timeout_seconds=_LOGOUT_SECONDS,
        session_parameters={"QUERY_TAG": "drumbeat spcs"},
    )
    return ConnectorSession(connection, snowflake.connector.DictCursor)


def credentials(settings: SpcsSettings, environment: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the connector's options to sign in by key pair, password or token. Raises NotSubmitted if a secret is missing."""

    def variable(name: str) -> str:
        if not environment.get(name):
            raise NotSubmitted(
                f"SPCS: expected a secret in the environment variable {name}, got none; set it", cause=SpawnCause.AUTH
            )
        return environment[name]

    if settings.private_key_file is not None:
        password = settings.private_key_password_variable
        return {
            "authenticator": "SNOWFLAKE_JWT",
            "private_key_file": str(settings.private_key_file.expanduser()),
            **({"private_key_file_pwd": variable(password)} if password else {}),
        }
    if settings.password_variable:
        return {"password": variable(settings.password_variable)}
    token = _read_token(settings) if settings.token_file is not None else variable(settings.token_variable)
    return {"authenticator": settings.authenticator or "oauth", "token": token}


def _read_token(settings: SpcsSettings) -> str:
    path = settings.token_file
    try:
        return path.expanduser().read_text().strip() if path is not None else ""
    except OSError as exc:
        raise NotSubmitted(f"SPCS: cannot read the token in {path}: {exc.strerror}", cause=SpawnCause.AUTH) from exc


class SpcsClient:
    """Runs statements, and retries them after temporary errors. That is safe: names are unique, so nothing is created twice."""

    def __init__(self, settings: SpcsSettings, clock: Clock, connect: Connect = sign_in) -> None:
        self._settings = settings
        self._clock = clock
        self._connect = connect
        self._threads = ThreadPoolExecutor(settings.sessions, thread_name_prefix="spcs")
        self._own = threading.local()  #: the session of each thread
        self._sessions: set[SpcsSession] = set()
        self._guard = threading.Lock()
        self.place = f"Snowflake account {settings.account}"

    async def close(self) -> None:
        """End the sessions, without waiting for statements in progress."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._guard:
            sessions, self._sessions = self._sessions, set()
        await asyncio.gather(*(asyncio.to_thread(_close_session, session) for session in sessions))

    async def run(self, what: str, statement: str, *, abandon: bool = True) -> Sequence[Row]:
        """Run a statement; ``what`` names it in errors. ``abandon``: a cancelled call does not wait for the answer.

        Raises SpcsRefused; NotSubmitted if the statement certainly had no effect; Unanswered if it might have had one, such as
        if the first try got no answer: then even a refused retry does not show what the first try did.
        """
        pauses, sent = [*_RETRY_PAUSES], False
        while True:
            try:
                return await self._once(what, statement, abandon)
            except SpcsRefused as exc:
                if exc.cause is not SpawnCause.TRANSIENT:
                    if sent and not exc.says_exists and not exc.says_missing:
                        raise Unanswered(str(exc), cause=exc.cause, retry_after=exc.retry_after) from exc
                    raise
                failure: SpawnError = exc
                sent = True
            except NotSubmitted as exc:
                failure = exc
            except Unanswered as exc:
                failure, sent = exc, True
            if not pauses or failure.cause is not SpawnCause.TRANSIENT:
                kind = Unanswered if sent else NotSubmitted
                raise kind(str(failure), cause=failure.cause, retry_after=failure.retry_after) from failure
            pause = pauses.pop(0)
            log.info("a statement to Snowflake failed: %s; retrying in %.1f s", failure, pause.total_seconds())
            await self._clock.sleep(pause)

    async def _once(self, what: str, statement: str, abandon: bool) -> Sequence[Row]:
        future = asyncio.get_running_loop().run_in_executor(self._threads, self._blocking, what, statement)
        seconds = self._settings.timeout.total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(future)
        except TimeoutError as exc:
            future.cancel()  # it is not sent if it still waits for a session
            raise Unanswered(f"{self.place}: no answer to {what} within {seconds:g} s") from exc
        except asyncio.CancelledError:
            if not abandon:
                with suppress(SpawnError, TimeoutError, asyncio.CancelledError):
                    async with asyncio.timeout(seconds):
                        await asyncio.shield(future)
            future.cancel()
            raise

    # In threads

    def _blocking(self, what: str, statement: str) -> Sequence[Row]:
        """Run a statement in this thread's session. If the session has expired, sign in again and repeat the statement once."""
        try:
            return self._executed(what, statement)
        except SpcsRefused as exc:
            if not exc.says_expired:
                raise
            self._forget()
        return self._executed(what, statement)

    def _executed(self, what: str, statement: str) -> Sequence[Row]:
        import snowflake.connector.errors as errors

        session = self._session()
        try:
            return session.execute(statement)
        except (errors.OperationalError, errors.InternalError, errors.InterfaceError) as exc:
            self._forget()
            raise Unanswered(f"{self.place}: no answer to {what}: {one_line(exc.raw_msg)}") from exc
        except errors.Error as exc:
            raise refusal(self.place, what, exc.errno, exc.sqlstate or "", exc.raw_msg) from exc
        except (OSError, ValueError, TypeError, AttributeError) as exc:
            self._forget()
            raise Unanswered(f"{self.place}: no readable answer to {what}: {one_line(str(exc))}") from exc

    def _session(self) -> SpcsSession:
        import snowflake.connector.errors as errors

        found: SpcsSession | None = getattr(self._own, "session", None)
        if found is not None:
            return found
        try:
            made = self._connect(self._settings)
        except errors.Error as exc:
            is_lost = exc.errno == _CANNOT_CONNECT and (exc.sqlstate or "").startswith("08")
            is_network = is_lost or isinstance(exc, errors.OperationalError | errors.InternalError)
            cause = SpawnCause.TRANSIENT if is_network else _sign_in_cause(exc)
            advice = "check the network and the account" if is_network else "check user, role and secret"
            raise NotSubmitted(f"{self.place}: cannot sign in: {one_line(exc.raw_msg)}; {advice}", cause=cause) from exc
        except (OSError, ValueError, TypeError) as exc:
            raise NotSubmitted(f"{self.place}: cannot sign in: {one_line(str(exc))}", cause=SpawnCause.AUTH) from exc
        self._own.session = made
        with self._guard:
            self._sessions.add(made)
        return made

    def _forget(self) -> None:
        """End this thread's session, so that the next statement signs in again."""
        session: SpcsSession | None = getattr(self._own, "session", None)
        self._own.session = None
        if session is not None:
            with self._guard:
                self._sessions.discard(session)
            _close_session(session)


def _sign_in_cause(exc: Any) -> SpawnCause:
    """Return the cause of a failed sign-in. An unknown error counts as AUTH: the user, role or secret is wrong."""
    cause = cause_of(exc.errno, exc.sqlstate or "", one_line(exc.raw_msg))
    return SpawnCause.AUTH if cause is SpawnCause.BAD_REQUEST else cause


def _close_session(session: SpcsSession) -> None:
    """End a session. If that fails, Snowflake ends the session later."""
    try:
        session.close()
    except Exception as exc:
        log.debug("a session with Snowflake could not be closed: %s", exc)
