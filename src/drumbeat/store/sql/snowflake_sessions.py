"""Sessions of Snowflake's connector, which blocks: each runs in a thread, and goes back to a small pool after use."""

import asyncio
import queue
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

from drumbeat.core.errors import DrumbeatError, InvalidInput, InvalidSettings, MissingExtra, StoreUnavailable
from drumbeat.store.sql.database import TransactionTooLong
from drumbeat.store.sql.snowflake_sign_in import SnowflakeSignIn
from drumbeat.store.sql.snowflake_transaction import LOCK_WAIT

T = TypeVar("T")

MISSING = 2003  #: error number: there is no such table
LOCKED = frozenset({625})  #: error numbers: another transaction did not release a lock in time
_TIMED_OUT = 630  #: error number: a statement took longer than STATEMENT_TIMEOUT_IN_SECONDS
#: error numbers: the session is too old or was closed; 250001 if the connector could not renew it
EXPIRED = frozenset({250001, 390104, *range(390110, 390116)})
_REFUSED_SIGN_INS = frozenset({*range(390100, 390500), 394400}) - EXPIRED
_NO_PRIVILEGE = frozenset({3001, 3540, 90105})
_NO_HYBRID_TABLES = frozenset({391420, 391421, 391402})
_BAD_VALUES = frozenset({100038, 100069, 100078, 100071, 100132, 100090})


class SessionExpired(Exception):
    """A session had expired before the work changed anything, so another session can do the work."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class SnowflakeSessions:
    """Sessions for reading and for writing; up to ``most`` are used at a time, each by one thread. After an error a session is
    rolled back and used again, or closed if the rollback fails."""

    def __init__(
        self, sign_in: SnowflakeSignIn, most: int, command_timeout: timedelta, connect_timeout: timedelta, *, hybrid: bool
    ) -> None:
        self._sign_in = sign_in
        self._hybrid = hybrid
        self._timeouts = (command_timeout, connect_timeout)
        self._idle: dict[bool, queue.LifoQueue[Any]] = {writing: queue.LifoQueue() for writing in (False, True)}
        self._threads = ThreadPoolExecutor(max_workers=most, thread_name_prefix="snowflake")
        self._closing = threading.Event()

    @property
    def location(self) -> str:
        """The address of the schema, without user and secrets."""
        return f"snowflake://{self._sign_in.account}/{self._sign_in.database}/{self._sign_in.schema}"

    async def run(self, work: Callable[[Any], T], *, writing: bool = False) -> T:
        """Run blocking work with a session, in a thread. Errors of the connector are translated to Drumbeat's errors.

        With ``writing``, the work must commit its transaction; without it, the session commits after each statement. If the
        session has expired, the work is done again with a new one: without ``writing`` always, with it if the work raises
        SessionExpired.
        """
        if self._closing.is_set():
            raise StoreUnavailable("this store is closed; open it before use")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._work, work, writing)

    async def close(self) -> None:
        """Wait for the work in progress, and close all sessions."""
        self._closing.set()
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def translated(self, exc: Exception) -> DrumbeatError:
        """Return the Drumbeat error for an error of the connector. In its text, ``***`` replaces the secret."""
        number = getattr(exc, "errno", None) or 0
        message = self._without_secrets(str(getattr(exc, "raw_msg", None) or exc or type(exc).__name__)).strip()
        if number in _REFUSED_SIGN_INS or any(
            found in _REFUSED_SIGN_INS for found in map(int, re.findall(r"\b39\d{4}\b", message))
        ):
            return InvalidSettings(
                f"Snowflake at {self.location} refused the sign-in of {self._sign_in.user} ({number}): {message}; "
                "check user, secret and role of the store's URL"
            )
        if number in _NO_PRIVILEGE:
            return InvalidSettings(f"Snowflake at {self.location} refused: {message}; grant it to the role of the store's URL")
        if number in _NO_HYBRID_TABLES:
            return InvalidSettings(
                f"Snowflake at {self.location} has no hybrid tables: {message}; add tables=standard to the store's URL"
            )
        if number in _BAD_VALUES:
            return InvalidInput(f"Snowflake cannot store this value: {message}")
        if number in LOCKED:
            return StoreUnavailable(
                f"Snowflake at {self.location}: waited too long for another transaction ({number}); try again"
            )
        kind = TransactionTooLong if number == _TIMED_OUT else StoreUnavailable
        return kind(f"Snowflake at {self.location}: {message} ({number})")

    def _without_secrets(self, text: str) -> str:
        return text.replace(self._sign_in.secret, "***") if self._sign_in.secret else text

    def _work(self, work: Callable[[Any], T], writing: bool) -> T:
        try:
            try:
                return self._use(self._take(writing), work, writing)
            except SessionExpired:
                return self._use(self._connect(writing), work, writing)
        except SessionExpired as expired:
            raise self.translated(expired.error) from expired.error
        except driver().Error as exc:
            raise self.translated(exc) from exc

    def _use(self, session: Any, work: Callable[[Any], T], writing: bool) -> T:
        try:
            result = work(session)
        except BaseException as exc:
            self._give_back(session, writing, usable=_is_usable(session))
            if not writing and isinstance(exc, driver().Error) and exc.errno in EXPIRED:
                raise SessionExpired(exc) from exc
            raise
        self._give_back(session, writing, usable=True)
        return result

    def _take(self, writing: bool) -> Any:
        try:
            return self._idle[writing].get_nowait()
        except queue.Empty:
            return self._connect(writing)

    def _give_back(self, session: Any, writing: bool, *, usable: bool) -> None:
        if usable:
            self._idle[writing].put(session)
        else:
            with suppress(Exception):
                session.close()

    def _connect(self, writing: bool) -> Any:
        command, connect = (round(timeout.total_seconds()) for timeout in self._timeouts)
        of_hybrid_tables = {"HYBRID_TABLE_LOCK_TIMEOUT": LOCK_WAIT, "READ_LATEST_WRITES": True}
        return driver().connect(
            **self._sign_in.parameters(),
            paramstyle="qmark",
            autocommit=not writing,
            login_timeout=connect,
            application="drumbeat",
            enable_server_session_keep_alive_auto_detection=False,
            session_parameters={
                "LOCK_TIMEOUT": LOCK_WAIT,
                "STATEMENT_TIMEOUT_IN_SECONDS": 10 * command,
                "QUERY_TAG": "drumbeat-store",
                "TIMEZONE": "UTC",
                **(of_hybrid_tables if self._hybrid else {}),
            },
        )

    def _close(self) -> None:
        self._threads.shutdown(wait=True)
        for idle in self._idle.values():
            with suppress(queue.Empty):
                while True:
                    session = idle.get_nowait()
                    with suppress(Exception):
                        session.close()


def roll_back(session: Any) -> None:
    """End the session's transaction without keeping its changes."""
    session.cursor().execute("ROLLBACK")


def _is_usable(session: Any) -> bool:
    """Whether a session can be used again after an error: its transaction could be rolled back."""
    try:
        roll_back(session)
    except Exception:
        return False
    return True


@cache
def driver() -> Any:
    try:
        import snowflake.connector
    except ImportError as exc:
        raise MissingExtra("the Snowflake store", "snowflake") from exc
    return snowflake.connector
