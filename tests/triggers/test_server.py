"""The server for webhooks answers whole requests while others are half open, and closes those."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus

import pytest

from drumbeat.triggers import server
from drumbeat.triggers.deliveries import WebhookAnswer

PATIENCE = 60.0
WHOLE = b"POST /hooks/x HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"
HALVES = [b"", b"POST /hooks/x HT", b"POST /hooks/x HTTP/1.1\r\nContent-Length: 2\r\n\r\n{"]


async def answer(method: str, path: str, headers: Mapping[str, str], body: bytes) -> WebhookAnswer:
    return WebhookAnswer(status=HTTPStatus.OK, body={"heard": body.decode()})


async def said(place: tuple[str, int], request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*place)
    writer.write(request)
    try:
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_half_open_connections_keep_nobody_waiting() -> None:
    async with server.serve(answer, "127.0.0.1", 0, within=timedelta(minutes=5)) as place:
        held = [await asyncio.open_connection(*place) for _ in range(server._MOST_AT_ONCE + 1)]

        assert b'{"heard": "{}"}' in await said(place, WHOLE)

        for _, writer in held:
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize("half", HALVES)
async def test_all_half_open_connections_are_told_and_closed(half: bytes) -> None:
    async with server.serve(answer, "127.0.0.1", 0, within=timedelta(seconds=1)) as place:
        answers = await asyncio.gather(*(said(place, half) for _ in range(3 * server._MOST_AT_ONCE)))

    assert {each.partition(b"\r\n")[0] for each in answers} == {b"HTTP/1.1 408 Request Timeout"}


async def test_more_connections_than_a_bound_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_MOST_OPEN", 3)
    async with server.serve(answer, "127.0.0.1", 0, within=timedelta(minutes=5)) as place:
        held = [await asyncio.open_connection(*place) for _ in range(3)]

        assert await said(place, b"") == b""

        for _, writer in held:
            writer.close()
            await writer.wait_closed()
