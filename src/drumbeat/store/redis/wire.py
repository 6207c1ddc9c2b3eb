"""One Redis connection shared by many tasks: commands are sent without delay, replies come back in the same order.

Concurrent commands share round trips (pipelining), and no task waits for a free connection. If a task is cancelled, its
command has been sent already, so its reply is still read, and dropped.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

Word = bytes | str | int | float


class RedisReplyError(Exception):
    """Redis answered a command with an error."""


class _Incomplete(Exception):
    """A reply has arrived only in part."""


class PipelinedConnection(asyncio.Protocol):
    """A Redis connection, already logged in. Keeps the driver's writer (``held``), since deleting it closes the connection."""

    def __init__(self, transport: asyncio.Transport, held: object = None) -> None:
        self._transport = transport
        self._held = held
        self._replies: deque[asyncio.Future[Any]] = deque()
        self._deadlines: deque[float] = deque()  #: one for each entry of ``_replies``, by the loop's clock
        self._timer: asyncio.TimerHandle | None = None
        self._rest = b""
        self._loop = asyncio.get_running_loop()
        transport.set_protocol(self)

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def ask(self, words: Sequence[Word], within: float) -> asyncio.Future[Any]:
        """Send a command and return a future of its reply. If none comes within ``within`` seconds, the connection is closed
        and the future raises TimeoutError."""
        reply: asyncio.Future[Any] = self._loop.create_future()
        self._transport.write(_packed(words))
        self._replies.append(reply)
        deadline = self._loop.time() + within
        self._deadlines.append(deadline)
        if self._timer is None or self._timer.when() > deadline:
            self._set_timer(deadline)
        return reply

    def close(self) -> None:
        """Close the connection at once. Futures of missing replies fail with ConnectionError."""
        self._transport.abort()
        self.connection_lost(None)

    def _set_timer(self, deadline: float) -> None:
        """Start the timer (one for all replies) that fires at this deadline."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._deadlines and self._loop.time() < self._deadlines[0]:
            self._set_timer(self._deadlines[0])
        elif self._deadlines:
            _fail(self._replies[0], TimeoutError())
            self.close()

    def data_received(self, data: bytes) -> None:
        text, at = self._rest + data if self._rest else data, 0
        try:
            while at < len(text):
                value, at = _read(text, at)
                self._answer(value)
        except _Incomplete:
            pass
        self._rest = text[at:] if at else text

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
        while self._replies:
            _fail(self._replies.popleft(), ConnectionError(f"the connection was lost{f': {exc}' if exc else ''}"))

    def _answer(self, value: Any) -> None:
        if not self._replies:
            return
        self._deadlines.popleft()
        reply = self._replies.popleft()
        if isinstance(value, RedisReplyError):
            _fail(reply, value)
        elif not reply.done():
            reply.set_result(value)


def _fail(reply: "asyncio.Future[Any]", error: Exception) -> None:
    """Set a future's error, and read it, so that asyncio does not log an error that nobody reads (its task was cancelled)."""
    if not reply.done():
        reply.set_exception(error)
        reply.exception()


def _packed(words: Sequence[Word]) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        text = word if isinstance(word, bytes) else (word if isinstance(word, str) else str(word)).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(parts)


def _read(text: bytes, at: int) -> tuple[Any, int]:
    """Decode the reply (RESP 2) that starts at ``at``; return it and where the next one starts. Raises _Incomplete."""
    end = text.find(b"\r\n", at)
    if end < 0:
        raise _Incomplete
    kind, head, at = text[at], text[at + 1 : end], end + 2
    if kind == 0x24:  # $
        return _read_bulk(text, at, int(head))
    if kind == 0x3A:  # :
        return int(head), at
    if kind == 0x2A:  # *
        return _read_array(text, at, int(head))
    if kind == 0x2D:  # -
        return RedisReplyError(head.decode(errors="replace")), at
    return head, at


def _read_bulk(text: bytes, at: int, length: int) -> tuple[bytes | None, int]:
    if length < 0:
        return None, at
    end = at + length
    if len(text) < end + 2:
        raise _Incomplete
    return text[at:end], end + 2


def _read_array(text: bytes, at: int, length: int) -> tuple[list[Any] | None, int]:
    if length < 0:
        return None, at
    values = []
    for _ in range(length):
        value, at = _read(text, at)
        values.append(value)
    return values, at
