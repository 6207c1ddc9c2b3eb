"""A small HTTP server for webhooks: one request per connection, with limits on size and time."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from drumbeat.core.errors import InvalidSettings
from drumbeat.triggers.deliveries import WebhookAnswer
from drumbeat.triggers.webhook import LARGEST_BODY

log = logging.getLogger(__name__)

_LARGEST_HEAD = 16 * 1024
_ARRIVES_WITHIN = timedelta(seconds=10)  #: time from connecting until the whole request must have arrived
_MOST_AT_ONCE = 64  #: maximum number of requests handled at once; others wait
_MOST_OPEN = 512  #: maximum number of open connections; further ones are closed at once

Answering = Callable[[str, str, Mapping[str, str], bytes], Awaitable[WebhookAnswer]]


class _Unreadable(Exception):
    """Raised for data that is not a valid HTTP request; holds the response to send."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.answer = WebhookAnswer(status=status, body={"error": reason})


@asynccontextmanager
async def serve(
    answer: Answering, host: str, port: int, *, within: timedelta = _ARRIVES_WITHIN
) -> AsyncIterator[tuple[str, int]]:
    """Listen for requests while the block lasts. Yields host and port; port 0 picks a free port.

    Raises InvalidSettings if the server cannot listen on this host and port.
    """
    busy = asyncio.Semaphore(_MOST_AT_ONCE)
    connections: set[asyncio.StreamWriter] = set()

    async def limited(*request: Any) -> WebhookAnswer:
        async with busy:
            return await answer(*request)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(connections) >= _MOST_OPEN:
            writer.close()
            return
        connections.add(writer)
        try:
            await _handle(reader, writer, limited, within.total_seconds())
        except (ConnectionError, TimeoutError) as exc:
            log.info("a webhook client disconnected before it received its response: %s", exc)
        finally:
            connections.discard(writer)
            writer.close()

    try:
        server = await asyncio.start_server(connected, host, port, limit=_LARGEST_HEAD)
    except (OSError, OverflowError) as exc:
        raise InvalidSettings(f"could not listen on {host}:{port}: {exc}; choose another --port") from exc
    async with server:
        address = server.sockets[0].getsockname()
        yield str(address[0]), int(address[1])


async def _handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answering, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            method, path, headers, body = await _request(reader)
        reply = await answer(method, path, headers, body)
    except _Unreadable as exc:
        reply = exc.answer
    except TimeoutError:
        reply = WebhookAnswer(status=HTTPStatus.REQUEST_TIMEOUT, body={"error": f"expected the request within {seconds:g} s"})
    except Exception:
        log.exception("failed to handle a webhook request; answering with status 500")
        reply = WebhookAnswer(status=HTTPStatus.INTERNAL_SERVER_ERROR, body={"error": "internal error; see the server's log"})
    writer.write(_written(reply))
    async with asyncio.timeout(seconds):
        await writer.drain()


async def _request(reader: asyncio.StreamReader) -> tuple[str, str, Mapping[str, str], bytes]:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError as exc:
        raise _Unreadable(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"headers: expected up to {_LARGEST_HEAD} bytes") from exc
    except asyncio.IncompleteReadError as exc:
        raise _Unreadable(HTTPStatus.BAD_REQUEST, "expected an HTTP request, got incomplete headers") from exc
    first, *rest = head.rstrip("\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _Unreadable(HTTPStatus.BAD_REQUEST, "expected a request line like POST /triggers/NAME HTTP/1.1")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    return words[0], words[1], headers, await _body(reader, headers)


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if "transfer-encoding" in headers:
        raise _Unreadable(HTTPStatus.LENGTH_REQUIRED, "expected the header Content-Length, got Transfer-Encoding")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise _Unreadable(HTTPStatus.BAD_REQUEST, "Content-Length: expected a number of bytes")
    if len(length) > len(str(LARGEST_BODY)) or int(length) > LARGEST_BODY:
        raise _Unreadable(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"body: expected up to {LARGEST_BODY} bytes, got {length[:40]}")
    try:
        return await reader.readexactly(int(length))
    except asyncio.IncompleteReadError as exc:
        raise _Unreadable(HTTPStatus.BAD_REQUEST, f"body: expected {length} bytes, got {len(exc.partial)}") from exc


def _written(answer: WebhookAnswer) -> bytes:
    body = json.dumps(answer.body, default=str).encode()
    head = f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
