"""Closes connections whose request does not arrive in time or has too long a head; uvicorn alone limits neither."""

from asyncio import TimerHandle, Transport
from datetime import timedelta
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

ENOUGH = 64 * 1024  #: the timer restarts each time this many bytes of a body have arrived
LONGEST_HEAD = 64 * 1024  #: a connection is closed when more bytes than this have arrived of a head, and it still has no end
_RESERVED = 0.2  #: share of the process's file descriptors reserved for the store and other files


class LimitedHttpProtocol(HttpToolsProtocol):
    """A uvicorn HTTP protocol that limits the time for a request to arrive, the length of its head, and the connections.

    The timer starts with the connection and with each further request on it. It is off while a request is answered. Of a body
    sent in chunks, the lines between and after its parts are limited like a head.
    """

    within: timedelta  #: time limit for a request to arrive
    most: int | None = None  #: further connections are refused; None: no limit
    _timer: TimerHandle | None = None
    _received = 0
    _head = 0  #: bytes received since the last end of a head, part of a body, or end of a request

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        if self.most is not None and len(self.connections) >= self.most:
            transport.abort()
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        self._head += len(data)
        super().data_received(data)
        if self._head > LONGEST_HEAD:
            self.transport.abort()
        if self._is_answering():
            self._disarm()
        elif self._timer is None or self._received >= ENOUGH:
            self._arm()

    def on_headers_complete(self) -> None:
        self._head = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head = 0
        super().on_message_complete()

    def handle_websocket_upgrade(self, *arguments: Any) -> None:
        self._disarm()
        super().handle_websocket_upgrade(*arguments)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def _is_answering(self) -> bool:
        """Whether the timer must be off: the server is answering, or the connection is closed or became a WebSocket."""
        if self.transport.is_closing() or self not in self.connections:
            return True
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def _arm(self) -> None:
        self._disarm()
        self._received = 0
        self._timer = self.loop.call_later(self.within.total_seconds(), self._close)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        """Close a connection whose request did not arrive in time; if the server has paused reading, restart the timer."""
        if self.flow.read_paused:
            self._arm()
        else:
            self.transport.abort()


def http_protocol_with_limits(within: timedelta, most: int | None = None) -> type[LimitedHttpProtocol]:
    """Return a protocol class with these limits: uvicorn creates the protocols itself and passes them nothing of ours."""
    return type("LimitedHttpProtocol", (LimitedHttpProtocol,), {"within": within, "most": most})


def most_connections() -> int | None:
    """Return the most connections to accept, so that file descriptors remain for the store; None if there is no limit."""
    try:
        import resource
    except ModuleNotFoundError:  # pragma: no cover  (Windows)
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else max(1, int(soft * (1 - _RESERVED)))
