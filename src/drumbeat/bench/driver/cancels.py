"""Cancels operations that timed out, in background threads: asks the server to stop each, then closes its session."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from drumbeat.bench.driver.session import PostgresAddress, PostgresSession, cancel
from drumbeat.core.errors import InvalidSettings

log = logging.getLogger(__name__)

_AT_ONCE = 16
_EACH = timedelta(seconds=2)  #: timeout of one cancel request
_LAST = 3.0  #: seconds that ``close`` waits for the remaining requests


class CancelRequests:
    """Cancels timed-out operations and closes their sessions in the background. Any thread can call ``end``: it never waits."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._until = float("inf")
        self._last_error = ""
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="cancel")

    def end(self, session: PostgresSession, then: Callable[[], None]) -> None:
        """Cancel the session's operation, close the session, and finally call ``then()``, even if the cancel request fails.

        The session closes only after the request: a connection pooler forgets a client's cancel key when the client leaves.
        """
        self._threads.submit(self._end, session, then)

    def _end(self, session: PostgresSession, then: Callable[[], None]) -> None:
        try:
            self._cancel(session)
        except (OSError, InvalidSettings) as exc:
            self._warn(str(exc))
        finally:
            session.close()
            then()

    def _cancel(self, session: PostgresSession) -> None:
        if time.monotonic() > self._until:
            raise TimeoutError("no time left to ask the database to cancel the operation")
        cancel(self._address, session, _EACH)

    def _warn(self, reason: str) -> None:
        if reason != self._last_error:
            self._last_error = reason
            log.warning("failed to cancel timed-out operations at %s: %s; they might still run", self._address.location, reason)

    def close(self) -> None:
        """Wait for the cancel requests that are queued or running, but only a few seconds. Blocks the calling thread."""
        self._until = time.monotonic() + _LAST
        self._threads.shutdown(wait=True)
