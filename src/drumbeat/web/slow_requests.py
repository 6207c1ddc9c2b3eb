"""Closes a connection if a request arrives too slowly or has too long a head, if its client reads an answer too slowly, or if
too many requests wait on it; uvicorn alone has none of these limits."""

from asyncio import TimerHandle, Transport
from datetime import timedelta
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

ENOUGH = 64 * 1024  #: a timer restarts each time this many bytes of a body have arrived, or of an answer were sent
MOST_PIPELINED = 10  #: most requests that may wait on a connection for the answer to an earlier one; else it is closed
LONGEST_HEAD = 64 * 1024  #: most bytes of a request's head (request line and headers); else the connection is closed
_RESERVED = 0.2  #: share of the process's file descriptors reserved for the store and other files


class LimitedHttpProtocol(HttpToolsProtocol):
    """A uvicorn HTTP protocol that limits the time for a request to arrive and for its answer to be read, the length of its
    head, the requests that wait on one connection, and the connections.

    One timer limits how long a request may take to arrive; it is off while the server answers. A second timer limits how long
    the client may leave an answer unread; it also runs after the connection was closed, until the last bytes were read. In a
    body sent in chunks, the lines between the chunks and after the last one are limited like a head.
    """

    within: timedelta  #: time limit for a request to arrive
    most: int | None = None  #: further connections are refused; None: no limit
    _timer: TimerHandle | None = None
    _received = 0
    _head = 0  #: bytes received since the end of a head, a part of a body, or the end of a request
    _write_timer: TimerHandle | None = None
    _unsent = 0  #: bytes of answers that the client had not read when that timer started

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
        self._watch_closing()
        if self._is_answering():
            self._disarm()
        elif self._timer is None or self._received >= ENOUGH:
            self._arm()

    def on_headers_complete(self) -> None:
        self._head = 0
        if len(self.pipeline) < MOST_PIPELINED:
            super().on_headers_complete()
        else:
            self.transport.abort()

    def on_body(self, body: bytes) -> None:
        self._head = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head = 0
        super().on_message_complete()

    def handle_websocket_upgrade(self, *arguments: Any) -> None:
        if self.transport.is_closing():
            return
        self._disarm()
        self._unwatch()
        super().handle_websocket_upgrade(*arguments)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._unwatch()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        self._unwatch()
        super().resume_writing()
        self._watch_closing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_closing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._watch_closing()

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

    def _watch_closing(self) -> None:
        """If the connection was closed before its client has read everything, limit the time for the client to do so."""
        if self._write_timer is None and self.transport.is_closing() and self in self.connections:
            self._watch()

    def _watch(self) -> None:
        self._unwatch()
        self._unsent = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self.within.total_seconds(), self._check_writing)

    def _unwatch(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _check_writing(self) -> None:
        """Close a connection whose client has not read enough since the timer started; else restart the timer."""
        if self._unsent - self.transport.get_write_buffer_size() >= ENOUGH:
            self._watch()
        else:
            self.transport.abort()

    def _close(self) -> None:
        """Close a connection whose request did not arrive in time; if the server has paused reading, restart the timer."""
        if self.flow.read_paused:
            self._arm()
        else:
            self.transport.abort()


def http_protocol_with_limits(within: timedelta, most: int | None = None) -> type[LimitedHttpProtocol]:
    """Return a protocol class with these limits, because uvicorn creates the protocols itself, without arguments of ours."""
    return type("LimitedHttpProtocol", (LimitedHttpProtocol,), {"within": within, "most": most})


def most_connections() -> int | None:
    """Return the most connections to accept, so that file descriptors remain for the store; None if there is no limit."""
    try:
        import resource
    except ModuleNotFoundError:  # pragma: no cover  (Windows)
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else max(1, int(soft * (1 - _RESERVED)))
