"""A connection that does not bring a whole request in time is closed; one that is being answered is not."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
import uvicorn
import websockets
from uvicorn.server import ServerState

from drumbeat.composition.plane import open_control_plane
from drumbeat.settings import Settings
from drumbeat.web import server
from drumbeat.web.settings import WebSettings
from drumbeat.web.slow_requests import ENOUGH, LONGEST_HEAD, MOST_PIPELINED, http_protocol_with_limits, most_connections

PATIENCE = 60.0
SOON = timedelta(seconds=1)
GET = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
POST = b"POST /api/v1/pools HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
STREAM = b"GET /api/v1/pools/p/events-stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

HALF_OPEN = {
    "nothing": b"",
    "half a head": b"GET / HTTP/1.1\r\nHost: 127",
    "a head without its end": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    "half a body": POST + b'Content-Length: 100\r\n\r\n{"pool_id":',
    "half a body in chunks": POST + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"poo\r\n',
    "half a handshake": b"GET /api/v1/pools/p/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upg",
    "a request, and half of another": GET + b"GET / HTTP/1.1\r\nHo",
}


@asynccontextmanager
async def serving(folder: Path, within: timedelta = SOON, token: str | None = None) -> AsyncIterator[tuple[str, int]]:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    where = Settings(store=f"sqlite:///{folder}/drumbeat.db", state_dir=folder / "state")
    settings = WebSettings(port=0, conduct=False, arrives_within=within, token=token)
    async with open_control_plane(where, create=True) as plane, asyncio.TaskGroup() as group:
        await plane.pool("p").create()
        group.create_task(server.serve(plane, settings, address.set_result, stop, with_pages=False))
        try:
            async with asyncio.timeout(PATIENCE):
                parts = urlsplit(await address)
            yield str(parts.hostname), int(parts.port or 0)
        finally:
            stop.set()


async def said_until_closed(place: tuple[str, int], request: bytes) -> bytes:
    """All that a server says to a client that sends this and then waits."""
    reader, writer = await asyncio.open_connection(*place)
    try:
        writer.write(request)
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionResetError):
                return await reader.read()
        return b""
    finally:
        await hang_up(writer)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@pytest.mark.parametrize("request_", [pytest.param(each, id=name) for name, each in HALF_OPEN.items()])
async def test_what_never_arrives_whole_is_hung_up_on(
    tmp_path: Path, request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    gc.collect()  # what earlier tests left behind complains now, and not within this test
    caplog.clear()
    async with serving(tmp_path) as place:
        said = await said_until_closed(place, request_)

    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
    assert said.startswith(b"HTTP/1.1 200" if request_.startswith(GET) else b"")


async def test_half_a_login_form_is_no_error_of_the_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    head = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    gc.collect()
    caplog.clear()
    async with serving(tmp_path, token="t" * 32) as place:
        assert await said_until_closed(place, head + b"Content-Length: 100\r\n\r\ntoken=abc") == b""

    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_three_hundred_half_open_connections_are_all_closed(tmp_path: Path) -> None:
    async with serving(tmp_path) as place:
        said = await asyncio.gather(*(said_until_closed(place, b"GET / HTTP/1.1\r\n") for _ in range(300)))

        assert said == [b""] * 300
        assert b'{"status":"alive"}' in await said_until_closed(place, GET)


async def test_what_is_being_answered_stays_open(tmp_path: Path) -> None:
    """A stream and a WebSocket outlive a connection that was opened after them and closed for its time being over."""
    async with serving(tmp_path) as place:
        reader, writer = await asyncio.open_connection(*place)
        writer.write(STREAM)
        async with asyncio.timeout(PATIENCE):
            assert b"200 OK" in await reader.readuntil(b"\r\n")
            async with websockets.connect(f"ws://{place[0]}:{place[1]}/api/v1/pools/p/stream") as socket:
                assert await socket.recv() == '{"status":"connected"}'
                for _ in range(2):
                    await said_until_closed(place, b"")
                await (await socket.ping())
                assert not reader.at_eof()
        await hang_up(writer)


class Answering:
    """A task that is never done."""

    def add_done_callback(self, _: Any) -> None: ...


class Timers:
    """A loop that only keeps timers, to see which are pending."""

    def __init__(self) -> None:
        self.pending: list[tuple[float, Any]] = []
        self.made = 0

    def call_later(self, seconds: float, work: Callable[[], None]) -> Any:
        timer = SimpleNamespace(cancel=lambda: self.pending.remove((seconds, work)))
        self.pending.append((seconds, work))
        self.made += 1
        return timer

    def create_task(self, answering: Coroutine[Any, Any, None], **_: Any) -> Any:
        answering.close()
        return Answering()


class Wire(asyncio.Transport):
    """The other end's transport, which only remembers whether it was hung up."""

    aborted = False
    closed = False
    unsent = 0

    def is_closing(self) -> bool:
        return self.aborted or self.closed

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closed = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.unsent += len(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def nobody(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nothing is answered here")


@pytest.fixture
def connection() -> tuple[Any, Timers, Wire]:
    timers, wire = Timers(), Wire()
    made = http_protocol_with_limits(timedelta(seconds=20))(
        uvicorn.Config(nobody, log_config=None), ServerState(), {}, _loop=cast("Any", timers)
    )
    made.connection_made(wire)
    return made, timers, wire


def test_a_body_that_makes_progress_gets_its_time_again(connection: tuple[Any, Timers, Wire]) -> None:
    made, timers, wire = connection

    made.data_received(POST + f"Content-Length: {2 * ENOUGH}\r\n\r\n".encode())
    assert timers.made == 1
    made.data_received(b"x" * ENOUGH)
    assert (timers.made, len(timers.pending)) == (2, 1)
    made.data_received(b"x")
    assert (timers.made, len(timers.pending)) == (2, 1)
    made.data_received(b"x" * (ENOUGH - 1))

    assert timers.pending == []
    assert not wire.aborted


def test_the_time_is_over_once_for_a_client_that_trickles(connection: tuple[Any, Timers, Wire]) -> None:
    made, timers, wire = connection
    for sign in b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n":
        made.data_received(bytes([sign]))

    [(seconds, close)] = timers.pending
    close()

    assert (timers.made, seconds, wire.aborted) == (1, 20.0, True)


@pytest.mark.parametrize(
    "endless",
    [
        pytest.param(b"X-Much: " + b"x" * 1000 + b"\r\n", id="header lines"),
        pytest.param(b"x" * 1000, id="one header's value"),
    ],
)
def test_a_head_without_end_is_cut_off(connection: tuple[Any, Timers, Wire], endless: bytes) -> None:
    made, _, wire = connection
    made.data_received(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-First: ")
    received = 0
    while not wire.aborted and received < 10 * LONGEST_HEAD:
        made.data_received(endless)
        received += len(endless)

    assert LONGEST_HEAD - 100 < received <= LONGEST_HEAD + len(endless)


@pytest.mark.parametrize(
    "endless",
    [pytest.param(b"X-Much: " + b"x" * 1000 + b"\r\n", id="trailing headers"), pytest.param(b"x" * 1000, id="an extension")],
)
def test_what_surrounds_the_chunks_of_a_body_is_limited(connection: tuple[Any, Timers, Wire], endless: bytes) -> None:
    made, _, wire = connection
    made.data_received(POST + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"poo\r\n')
    made.data_received(b"0\r\n" if endless.endswith(b"\n") else b"5;")
    received = 0
    while not wire.aborted and received < 10 * LONGEST_HEAD:
        made.data_received(endless)
        received += len(endless)

    assert LONGEST_HEAD - 100 < received <= LONGEST_HEAD + len(endless)


def test_many_short_requests_and_a_long_body_are_not_taken_for_a_long_head(connection: tuple[Any, Timers, Wire]) -> None:
    made, _, wire = connection
    for _ in range(2 * LONGEST_HEAD // len(GET)):
        made.data_received(GET)
        made.pipeline.clear()  # as if they were answered
    made.data_received(POST + f"Content-Length: {4 * LONGEST_HEAD}\r\n\r\n".encode())
    for _ in range(64):
        made.data_received(b"x" * (LONGEST_HEAD // 16))

    assert not wire.aborted


def test_a_body_that_this_side_does_not_read_on_is_no_fault_of_the_client(connection: tuple[Any, Timers, Wire]) -> None:
    made, timers, wire = connection
    made.data_received(POST + f"Content-Length: {4 * ENOUGH}\r\n\r\n".encode() + b"x" * (ENOUGH + 1000))

    timers.pending[0][1]()

    assert made.flow.read_paused
    assert not wire.aborted


def test_an_answer_that_is_not_read_is_cut_off(connection: tuple[Any, Timers, Wire]) -> None:
    made, timers, wire = connection
    made.data_received(GET)
    assert timers.pending == []

    wire.write(b"x" * 4 * ENOUGH)
    made.pause_writing()
    [(seconds, check)] = timers.pending
    check()

    assert (seconds, wire.aborted) == (20.0, True)


def test_an_answer_that_is_read_slowly_gets_its_time_again(connection: tuple[Any, Timers, Wire]) -> None:
    made, timers, wire = connection
    made.data_received(GET)
    wire.write(b"x" * 4 * ENOUGH)
    made.pause_writing()
    for _ in range(3):
        wire.unsent -= ENOUGH
        timers.pending[0][1]()
    assert not wire.aborted

    made.resume_writing()

    assert timers.pending == []
    assert not wire.aborted


@pytest.mark.parametrize("how", ["after a bad request", "idle", "asked to close"])
def test_a_closed_connection_whose_last_answer_is_not_read_is_cut_off(connection: tuple[Any, Timers, Wire], how: str) -> None:
    """A transport that is closed waits for its last bytes to be read; below the high-water mark it does not pause writing."""
    made, timers, wire = connection
    if how == "after a bad request":
        made.data_received(b"\x16\x03\x01\x02\x00\r\n\r\n")
    else:
        made.data_received(GET)
        made.cycle.response_complete = True
        if how == "idle":
            made.timeout_keep_alive_handler()
        else:
            wire.close()
            made.on_response_complete()
    assert (wire.closed, wire.aborted) == (True, False)

    [(_, check)] = timers.pending
    check()

    assert wire.aborted


def test_nothing_is_watched_after_a_connection_is_lost(connection: tuple[Any, Timers, Wire]) -> None:
    made, timers, wire = connection
    made.data_received(GET)
    made.pause_writing()
    wire.close()

    made.connection_lost(None)
    made.on_response_complete()

    assert timers.pending == []


@pytest.mark.parametrize("together", [True, False])
def test_a_few_requests_wait_for_the_answer_to_another_and_more_are_cut_off(
    connection: tuple[Any, Timers, Wire], together: bool
) -> None:
    made, _, wire = connection
    for request in [GET * (1 + MOST_PIPELINED)] if together else [GET] * (1 + MOST_PIPELINED):
        made.data_received(request)
    assert (len(made.pipeline), wire.aborted) == (MOST_PIPELINED, False)

    made.data_received(GET * 1000)

    assert (len(made.pipeline), wire.aborted) == (MOST_PIPELINED, True)


def test_a_handshake_behind_too_many_requests_is_cut_off_too(connection: tuple[Any, Timers, Wire]) -> None:
    made, _, wire = connection
    upgrade = GET.replace(b"\r\n\r\n", b"\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")

    made.data_received(GET * (2 + MOST_PIPELINED) + upgrade)

    assert wire.aborted


async def test_clients_that_read_no_answer_are_hung_up_on(tmp_path: Path) -> None:
    """Without a token, such connections held hundreds of megabytes for as long as they liked."""
    async with serving(tmp_path, token="t" * 32) as place:
        _, writer = await asyncio.open_connection(*place, limit=1)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    writer.write(GET * 100)
                    await writer.drain()
        await hang_up(writer)

        assert b'{"status":"alive"}' in await said_until_closed(place, GET)


async def test_more_connections_than_files_allow_are_refused_and_the_server_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "most_connections", lambda: 5)
    async with serving(tmp_path, within=timedelta(minutes=5)) as place:
        held = [await asyncio.open_connection(*place) for _ in range(5)]
        assert await said_until_closed(place, GET) == b""

        for _, writer in held:
            await hang_up(writer)
        async with asyncio.timeout(PATIENCE):
            while b"alive" not in await said_until_closed(place, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")):
                pass


def test_some_files_are_kept_for_the_store() -> None:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    assert soft == resource.RLIM_INFINITY or most_connections() == int(soft * 0.8)
