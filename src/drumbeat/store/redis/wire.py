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


class PipelinedConnection(asyncio.Protocol):
    """A Redis connection, already logged in. Keeps the driver's writer (``held``), since deleting it closes the connection."""

    def __init__(self, transport: asyncio.Transport, held: object = None) -> None:
        self._transport = transport
        self._held = held
        self._replies: deque[asyncio.Future[Any]] = deque()
        self._deadlines: deque[float] = deque()  #: one for each entry of ``_replies``, by the loop's clock
        self._timer: asyncio.TimerHandle | None = None
        self._reader = ReplyReader()
        self._loop = asyncio.get_running_loop()
        transport.set_protocol(self)

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def ask(self, words: Sequence[Word], within: float) -> asyncio.Future[Any]:
        """Send a command and return a future of its reply. If none comes within ``within`` seconds, the connection is closed
        and the future raises TimeoutError. If the connection is closed, the future raises ConnectionError at once."""
        reply: asyncio.Future[Any] = self._loop.create_future()
        if not self.is_open:
            _fail(reply, ConnectionError("the connection was closed"))
            return reply
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
        for value in self._reader.feed(data):
            self._answer(value)

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


class ReplyReader:
    """Decodes replies (RESP 2) that arrive in pieces. It reads every byte once, also of a reply that comes in many pieces."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []  #: what arrived and is not decoded yet: the beginning of one value
        self._missing = 0  #: at least so many bytes must arrive before that value is complete
        self._arrays: list[tuple[list[Any], int]] = []  #: incomplete arrays with their lengths, the outermost first

    def feed(self, data: bytes) -> list[Any]:
        """Return the replies that are complete with this piece."""
        self._pieces.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return []
        text = b"".join(self._pieces) if len(self._pieces) > 1 else data
        replies, decoded_to = self._decode(text)
        self._pieces = [text[decoded_to:]] if decoded_to < len(text) else []
        return replies

    def _decode(self, text: bytes) -> tuple[list[Any], int]:
        """Return the complete replies in a text that begins where a value begins, and how far it was decoded."""
        replies: list[Any] = []
        arrays, at, size = self._arrays, 0, len(text)
        while at < size:
            end = text.find(b"\r\n", at)
            if end < 0:
                self._missing = 1
                break
            kind, head, after = text[at], text[at + 1 : end], end + 2
            if kind == 0x24 and (length := int(head)) >= 0:  # $
                begin, after = after, after + length + 2
                if after > size:
                    self._missing = after - size
                    break
                value: Any = text[begin : after - 2]
            elif kind == 0x2A and int(head) > 0:  # *
                arrays.append(([], int(head)))
                at = after
                continue
            else:
                value = _short_value(kind, head)
            at = after
            while arrays:  # the value belongs to the innermost array, which may be complete with it
                values, length = arrays[-1]
                values.append(value)
                if len(values) < length:
                    break
                arrays.pop()
                value = values
            else:
                replies.append(value)
        return replies, at


def _short_value(kind: int, head: bytes) -> Any:
    """Return the value that is a single line: a number, an error, a simple string, no value, or an empty array."""
    if kind == 0x3A:  # :
        return int(head)
    if kind == 0x2D:  # -
        return RedisReplyError(head.decode(errors="replace"))
    if kind == 0x24:  # $ of length -1
        return None
    if kind == 0x2A:  # * of length 0 or -1
        return [] if head == b"0" else None
    return head
