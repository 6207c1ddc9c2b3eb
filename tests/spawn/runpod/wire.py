"""The ways to a simulator: a socket of this machine, or none at all."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import httpx


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


class Answering(Protocol):
    """What is at the other end."""

    async def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer | None:
        """None: the connection breaks."""
        ...


class SimulatedWire(httpx.AsyncBaseTransport):
    """For an httpx client in this process: no socket, no waiting."""

    def __init__(self, simulator: Answering) -> None:
        self._simulator = simulator

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        target = request.url.raw_path.decode("ascii")
        answer = await self._simulator.answer(request.method, target, headers, await request.aread())
        if answer is None:
            raise httpx.ReadError("the connection broke", request=request)
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body, request=request)


@asynccontextmanager
async def served(simulator: Answering) -> AsyncIterator[str]:
    """On a port of this machine, as long as the block lasts; its URL."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _converse(simulator, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async with await asyncio.start_server(converse, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _converse(simulator: Answering, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request, one answer; the next has a connection of its own."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    if (answer := await simulator.answer(method, target, headers, body)) is not None:
        writer.write(_on_the_wire(answer))
        await writer.drain()


def _on_the_wire(answer: Answer) -> bytes:
    more = "".join(f"{name}: {value}\r\n" for name, value in answer.headers)
    kind = "application/problem+json" if answer.status >= 400 else "application/json"
    length = "" if answer.status == 204 else f"Content-Type: {kind}\r\nContent-Length: {len(answer.body)}\r\n"
    return f"HTTP/1.1 {answer.status} Simulated\r\n{length}{more}Connection: close\r\n\r\n".encode() + answer.body
