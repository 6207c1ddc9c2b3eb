"""Sessions whose operation was given up: the server is told to stop it, then they are closed. A few threads, a bounded time."""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from drumbeat.bench.driver.session import PostgresAddress, PostgresSession, cancel
from drumbeat.core.errors import InvalidSettings

log = logging.getLogger(__name__)

_AT_ONCE = 16
_EACH = timedelta(seconds=2)  #: for the server to take one request
_LAST = 3.0  #: seconds for what is left when all is closed


class Cancels:
    """Any thread may hand sessions over; none of them waits."""

    def __init__(self, address: PostgresAddress) -> None:
        self._address = address
        self._until = float("inf")
        self._complaint = ""
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="cancel")

    def end(self, session: PostgresSession, then: Callable[[], None]) -> None:
        """Stop what it runs and close it; ``then`` is called in any case. The session stays open meanwhile: a pooler between
        us and the server forgets a client's key with the client."""
        self._threads.submit(self._end, session, then)

    def _end(self, session: PostgresSession, then: Callable[[], None]) -> None:
        try:
            self._tell(session)
        except (OSError, InvalidSettings) as exc:
            self._complain(str(exc))
        finally:
            session.close()
            then()

    def _tell(self, session: PostgresSession) -> None:
        if time.monotonic() > self._until:
            raise TimeoutError("there was no time left to stop it")
        cancel(self._address, session, _EACH)

    def _complain(self, why: str) -> None:
        if why != self._complaint:
            self._complaint = why
            log.warning("operations that were given up may go on at %s: %s", self._address.location, why)

    def close(self) -> None:
        """Wait for those on their way. Blocks, but not for long, whatever the server does."""
        self._until = time.monotonic() + _LAST
        self._threads.shutdown(wait=True)
