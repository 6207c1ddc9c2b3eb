"""Streams on a real server and a real wire: whatever is sent, nothing breaks."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import pytest
import websockets

from drumbeat.composition.plane import open_control_plane
from drumbeat.core.clock import ManualClock
from drumbeat.core.run import RunStatus
from drumbeat.settings import Settings
from drumbeat.web.server import serve
from drumbeat.web.settings import WebSettings
from web.stream.scene import RUN, Scene

PATIENCE = 60.0


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[str, Scene]]:
    """A server on a free port, with a run under way in its store."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    where = Settings(store=f"sqlite:///{folder}/drumbeat.db", state_dir=folder / "state")
    async with open_control_plane(where, create=True) as plane, asyncio.TaskGroup() as group:
        scene = await Scene(plane.store, ManualClock()).made()
        await scene.led_to(RunStatus.STARTING, RunStatus.RUNNING)
        await scene.joined("a")
        await scene.worked(1)
        group.create_task(serve(plane, WebSettings(port=0, conduct=False), address.set_result, stop, with_pages=False))
        try:
            async with asyncio.timeout(PATIENCE):
                found = await address
            yield found, scene
        finally:
            stop.set()


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, Scene]]:
    async with serving(tmp_path_factory.mktemp("wire")) as made:
        yield made


def stream_of(address: str) -> str:
    return f"ws://{urlsplit(address).netloc}/api/v1/runs/{RUN}/stream"


async def closed_with(socket: websockets.ClientConnection) -> int | None:
    with contextlib.suppress(websockets.ConnectionClosed):
        while True:
            async with asyncio.timeout(PATIENCE):
                await socket.recv()
    return socket.close_code


async def answers(address: str) -> None:
    """A fresh stream still says hello and tells the run."""
    async with asyncio.timeout(PATIENCE), websockets.connect(stream_of(address)) as again:
        assert await again.recv() == '{"status":"connected"}'
        assert "RUN_UPDATE" in str(await again.recv())


@pytest.mark.parametrize(
    ("message", "code"), [(b"\x00\x01", 1003), ("x" * 5000, 1009), ("x" * 2_000_000, 1009), (os.urandom(100_000), 1003)]
)
async def test_what_a_stream_is_not_for_closes_it(server: tuple[str, Scene], message: str | bytes, code: int) -> None:
    async with websockets.connect(stream_of(server[0]), max_size=None) as socket:
        await socket.recv()
        with contextlib.suppress(websockets.ConnectionClosed):
            await socket.send(message)

        assert await closed_with(socket) == code
    await answers(server[0])


async def test_three_hundred_broken_frames_break_nothing(server: tuple[str, Scene]) -> None:
    """Raw bytes behind a good handshake: lengths that lie, masks left out, control frames too long, half a character."""
    chance = Random(7)
    host, port = urlsplit(server[0]).netloc.split(":")
    for _ in range(300):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"GET /api/v1/runs/{RUN}/stream HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        async with asyncio.timeout(PATIENCE):
            await reader.readuntil(b"\r\n\r\n")
        first = bytes([chance.choice((0x81, 0x82, 0x88, 0x89, 0x80, 0xF1, 0x01, chance.randrange(256)))])
        writer.write(first + chance.randbytes(chance.randrange(1, 40)))
        writer.close()
        await writer.wait_closed()

    await answers(server[0])


async def test_who_reads_nothing_holds_nobody_up(server: tuple[str, Scene]) -> None:
    host, port = urlsplit(server[0]).netloc.split(":")
    _, deaf = await asyncio.open_connection(host, int(port), limit=1)
    deaf.write(
        f"GET /api/v1/runs/{RUN}/stream HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    await answers(server[0])
    deaf.close()
    await deaf.wait_closed()


async def test_streams_end_with_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as (address, _):
        socket = await websockets.connect(stream_of(address))
        await socket.recv()
        await socket.recv()

    assert await closed_with(socket) in (1001, 1012)
