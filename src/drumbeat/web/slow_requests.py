"""Requests that never arrive whole: their connections are closed, which uvicorn by itself leaves open for good."""

from asyncio import TimerHandle, Transport
from datetime import timedelta
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

ENOUGH = 64 * 1024  #: bytes that count as progress; a body may take longer than its head as long as so many come in time
_SPARED = 0.2  #: of the files a process may have open, kept for the store and the rest


def protocol_within(within: timedelta, most: int | None = None) -> Any:
    """uvicorn's HTTP protocol, as a class whose connections bring a request within a time, and of which so many are open.

    The time begins with the connection, and again with each further request on it; while a request is answered there is none.
    """

    class Arrival(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
        _timer: TimerHandle | None = None
        _came = 0

        def connection_made(self, transport: Transport) -> None:
            if most is not None and len(self.connections) >= most:
                transport.abort()
            super().connection_made(transport)
            self._arm()

        def data_received(self, data: bytes) -> None:
            self._came += len(data)
            super().data_received(data)
            if self._is_answering():
                self._disarm()
            elif self._timer is None or self._came >= ENOUGH:
                self._arm()

        def handle_websocket_upgrade(self, *given: Any) -> None:
            self._disarm()
            super().handle_websocket_upgrade(*given)

        def connection_lost(self, exc: Exception | None) -> None:
            self._disarm()
            super().connection_lost(exc)

        def _is_answering(self) -> bool:
            """Whether a whole request is here and not yet answered, or the connection is no longer this protocol's."""
            if self.transport.is_closing() or self not in self.connections:
                return True
            return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

        def _arm(self) -> None:
            self._disarm()
            self._came = 0
            self._timer = self.loop.call_later(within.total_seconds(), self._close)

        def _disarm(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _close(self) -> None:
            """Hang up, unless it is this side that does not read on."""
            if self.flow.read_paused:
                self._arm()
            else:
                self.transport.abort()

    return Arrival


def most_connections() -> int | None:
    """How many connections leave enough of the files this process may open; None where there is no limit."""
    try:
        import resource
    except ModuleNotFoundError:  # pragma: no cover  (Windows)
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else max(1, int(soft * (1 - _SPARED)))
