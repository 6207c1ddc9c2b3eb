"""Streams of runs and pools: what is sent, when they end, and that nothing sent to them matters."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient

from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import ManualClock
from drumbeat.core.run import RunId, RunStatus
from drumbeat.store.memory import MemoryStore
from drumbeat.web.app import make_app
from drumbeat.web.app_state import AppState
from drumbeat.web.feeds_run import run_feed
from drumbeat.web.roles import AuthMethod, Caller, Role
from drumbeat.web.server import open_app_state
from drumbeat.web.sessions import COOKIE, Sessions
from drumbeat.web.settings import WebSettings
from drumbeat.web.stream import events as event_stream
from web.given import LOCKED
from web.stream.scene import RUN, Scene
from web.stream.socket import Socket, connected

SECOND = timedelta(seconds=1)
STREAM = f"/api/v1/runs/{RUN}/stream"


@pytest.fixture
async def state(plane: ControlPlane, clock: ManualClock) -> AsyncIterator[AppState]:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group, open_app_state(plane, WebSettings(conduct=False), clock, stop) as made:
        yield made
        made.feeds.close()
        group.create_task(clock.advance(5 * SECOND))


@pytest.fixture
def app(state: AppState) -> Any:
    return make_app(state, with_pages=False)


@pytest.fixture
async def running(scene: Scene) -> Scene:
    await scene.made()
    await scene.led_to(RunStatus.STARTING, RunStatus.RUNNING)
    await scene.joined("a")
    return scene


async def updates(socket: Socket, clock: ManualClock, scene: Scene, seconds: int) -> list[dict[str, Any]]:
    found = []
    for _ in range(seconds):
        await scene.worked(1)
        found.append(await socket.heard())
    return found


async def test_hello_comes_first_then_a_whole_update_each_second(app: Any, running: Scene, clock: ManualClock) -> None:
    async with connected(app, STREAM) as socket:
        assert await socket.opened()
        hello, first = await socket.heard(), await socket.heard()
        more = await updates(socket, clock, running, 3)

    assert hello == {"status": "connected"}
    assert {each["event"] for each in (first, *more)} == {"RUN_UPDATE"}
    assert [each["data"]["timing"]["elapsed_display_seconds"] for each in (first, *more)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("path", "during", "end"),
    [
        ((RunStatus.STOPPING, RunStatus.COMPLETED), "STOPPING", "COMPLETED"),
        ((RunStatus.CANCELLING, RunStatus.CANCELLED), "CANCELLING", "CANCELLED"),
        ((RunStatus.STOPPING, RunStatus.FAILED), "STOPPING", "FAILED"),
    ],
)
async def test_processing_is_told_before_any_end_and_then_it_closes(
    app: Any, running: Scene, clock: ManualClock, path: tuple[RunStatus, ...], during: str, end: str
) -> None:
    async with connected(app, STREAM) as socket:
        await socket.opened()
        await socket.heard()
        await socket.heard()
        await running.led_to(*path)
        await clock.advance(SECOND)
        processing, last, closed = await socket.heard(), await socket.heard(), await socket.heard()

    assert (processing["data"]["status"], processing["data"]["phase"]) == (during, "PROCESSING")
    assert (last["data"]["status"], last["data"]["phase"]) == (end, end)
    assert closed == {"closed": 1000}


async def test_a_run_that_is_over_is_told_once(app: Any, running: Scene) -> None:
    await running.led_to(RunStatus.STOPPING, RunStatus.COMPLETED)
    async with connected(app, STREAM) as socket:
        await socket.opened()
        await socket.heard()

        assert (await socket.heard())["data"]["status"] == "COMPLETED"
        assert await socket.heard() == {"closed": 1000}


async def test_only_new_log_lines_are_sent(app: Any, running: Scene, clock: ManualClock) -> None:
    await running.logged("one")
    async with connected(app, STREAM) as socket:
        await socket.opened()
        await socket.heard()
        told = [await socket.heard()]
        await running.logged("two")
        told += await updates(socket, clock, running, 2)

    assert [[line["message"] for line in each["data"]["logs"]] for each in told] == [["one"], ["two"], []]


async def test_a_store_that_is_away_is_said_and_the_stream_goes_on(
    app: Any, running: Scene, clock: ManualClock, store: MemoryStore
) -> None:
    async with connected(app, STREAM) as socket:
        await socket.opened()
        await socket.heard()
        await socket.heard()
        with store.unavailable():
            await clock.advance(SECOND)
            away = await socket.heard()
        await clock.advance(SECOND)
        back = await socket.heard()

    assert (away["event"], back["event"]) == ("STORE_UNAVAILABLE", "RUN_UPDATE")
    assert "unavailable" in away["data"]["message"]


async def test_a_run_that_is_deleted_ends_its_stream(app: Any, scene: Scene, clock: ManualClock) -> None:
    await scene.made()
    async with connected(app, STREAM) as socket:
        await socket.opened()
        await socket.heard()
        await socket.heard()
        await scene.store.runs.delete(RUN)
        await clock.advance(SECOND)

        assert (await socket.heard())["event"] == "GONE"
        assert await socket.heard() == {"closed": 1000}


@pytest.mark.parametrize("path", ["/api/v1/runs/nope/stream", "/api/v1/pools/nope/stream"])
async def test_what_is_not_there_is_not_streamed(app: Any, path: str) -> None:
    async with connected(app, path) as socket:
        assert not await socket.opened()

    assert socket.status == 404


@pytest.mark.parametrize("text", ["", "hello", "{", '{"event": "RUN_UPDATE"}', "\0", "x" * 4096, "💣" * 1000])
async def test_what_is_said_to_a_stream_is_not_listened_to(app: Any, running: Scene, clock: ManualClock, text: str) -> None:
    async with connected(app, STREAM) as socket:
        await socket.opened()
        await socket.heard()
        await socket.heard()
        for _ in range(50):
            socket.say(text=text)

        assert [each["event"] for each in await updates(socket, clock, running, 2)] == ["RUN_UPDATE"] * 2


@pytest.mark.parametrize(("message", "code"), [({"bytes": b"\x00"}, 1003), ({"text": "x" * 4097}, 1009)])
async def test_bytes_and_long_texts_close_it(app: Any, running: Scene, message: dict[str, Any], code: int) -> None:
    async with connected(app, STREAM) as socket:
        await socket.opened()
        await socket.heard()
        await socket.heard()
        socket.say(**message)

        assert await socket.heard() == {"closed": code}


async def test_who_hangs_up_is_no_longer_read_for(app: Any, running: Scene, state: AppState) -> None:
    async with connected(app, STREAM) as socket:
        await socket.opened()
        await socket.heard()

    assert [feed.listeners for feed in state.feeds._feeds.values()] == [0]


@asynccontextmanager
async def logged_in(plane: ControlPlane, clock: ManualClock) -> AsyncIterator[tuple[Any, str]]:
    """An application that requires a token, and the cookie of a session."""
    async with asyncio.TaskGroup() as group, open_app_state(plane, LOCKED, clock, asyncio.Event()) as made:
        yield make_app(made, with_pages=False), f"{COOKIE}={Sessions(LOCKED).open(Role.READER, clock.now())}"
        made.feeds.close()
        group.create_task(clock.advance(5 * SECOND))


async def test_a_stream_ends_when_its_session_is_logged_out(plane: ControlPlane, running: Scene, clock: ManualClock) -> None:
    async with logged_in(plane, clock) as (app, cookie), connected(app, STREAM, {"cookie": cookie}) as socket:
        await socket.opened()
        before = [(await socket.heard()).get("event") for _ in range(2)]
        async with AsyncClient(transport=ASGITransport(app=app), base_url="http://127.0.0.1:8321") as caller:
            left = await caller.post("/logout", headers={"cookie": cookie})
        (after,) = await updates(socket, clock, running, 1)

    assert (before, left.status_code, after) == ([None, "RUN_UPDATE"], 303, {"closed": 1008})


async def test_server_sent_events_end_when_their_session_has_ended(running: Scene, state: AppState) -> None:
    valid = [True]
    caller = Caller(role=Role.READER, means=AuthMethod.SESSION, is_valid=lambda: valid[0])
    lines = aiter(event_stream(run_feed(state.feeds, state.plane, RunId(RUN))[0], None, caller).body_iterator)

    first = [await anext(lines) for _ in range(2)]
    valid[0] = False
    await running.worked(1)

    assert first[0] == b"retry: 2000\n\n"
    assert "RUN_UPDATE" in str(first[1])
    assert [line async for line in lines] == []


async def test_two_streams_of_a_run_are_one_reader(app: Any, running: Scene, state: AppState) -> None:
    async with connected(app, STREAM) as one, connected(app, STREAM) as two:
        for socket in (one, two):
            await socket.opened()
            await socket.heard()
        frames = [await one.heard(), await two.heard()]

        assert len(state.feeds._feeds) == 1
        assert frames[0]["data"]["timestamp"] == frames[1]["data"]["timestamp"]


async def test_a_pool_is_streamed_with_depth_rates_workers_and_beats(app: Any, plane: ControlPlane, clock: ManualClock) -> None:
    desk = plane.pool("mail")
    await desk.create()
    await desk.push_many([{"n": n} for n in range(5)])
    async with connected(app, "/api/v1/pools/mail/stream") as socket:
        await socket.opened()
        await socket.heard()
        first = await socket.heard()
        job = await desk.claim()
        assert job is not None
        await desk.complete(job)
        await clock.advance(2 * SECOND)
        await socket.heard()
        last = await socket.heard()

    assert (first["event"], first["data"]["jobs"]["ready"], first["data"]["rates"]["done_per_second"]) == (
        "POOL_UPDATE",
        5,
        None,
    )
    assert (last["data"]["jobs"]["ready"], last["data"]["jobs"]["done"]) == (4, 1)
    assert last["data"]["rates"]["done_per_second"] == 0.5
    assert (last["data"]["workers"], last["data"]["beats"]) == ([], [])


async def test_a_pool_streams_its_rate_while_old_jobs_are_deleted(app: Any, plane: ControlPlane, clock: ManualClock) -> None:
    desk = plane.pool("mail")
    await desk.create()
    await desk.push_many([{"n": n} for n in range(9)])
    for _ in range(5):
        await desk.complete((await desk.claim_many(1))[0])
    await clock.advance(60 * SECOND)
    async with connected(app, "/api/v1/pools/mail/stream") as socket:
        await socket.opened()
        await socket.heard()
        await socket.heard()
        await desk.complete((await desk.claim_many(1))[0])
        await plane.store.jobs.prune(30 * SECOND)
        await clock.advance(2 * SECOND)
        await socket.heard()
        last = await socket.heard()

    assert (last["data"]["jobs"]["done"], last["data"]["rates"]["done_per_second"]) == (1, 0.5)


async def events(app: Any, path: str, count: int, last: str | None = None) -> list[dict[str, str]]:
    """So many server-sent events, as a browser reads them."""
    headers = [(b"host", b"127.0.0.1:8321"), *([(b"last-event-id", last.encode())] if last else [])]
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers,
        "root_path": "", "scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8321), "http_version": "1.1",
    }  # fmt: skip
    found: list[dict[str, str]] = []
    enough = asyncio.Event()
    asked = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if asked:
            return asked.pop()
        await enough.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        for block in message.get("body", b"").decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "event" in fields:
                found.append(fields)
        if len(found) >= count:
            enough.set()

    await app(scope, receive, send)
    return found


EVENTS = f"/api/v1/runs/{RUN}/events-stream"


async def test_server_sent_events_have_ids_and_the_same_data(app: Any, running: Scene) -> None:
    await running.logged("one")

    (event,) = await events(app, EVENTS, 1)

    assert (event["event"], event["id"]) == ("RUN_UPDATE", "1-1")
    assert json.loads(event["data"])["data"]["test_id"] == RUN


async def test_who_resumes_is_told_no_line_twice_and_none_is_left_out(app: Any, running: Scene, clock: ManualClock) -> None:
    await running.logged("one", "two")
    (first,) = await events(app, EVENTS, 1)
    await running.logged("three", "four")
    await clock.advance(5 * SECOND)

    (again,) = await events(app, EVENTS, 1, last=first["id"])

    assert [line["message"] for line in json.loads(again["data"])["data"]["logs"]] == ["three", "four"]


@pytest.mark.parametrize("spoiled", ["", "x", "1-", "-1", "9" * 500, "1-99999999999999999999"])
async def test_an_id_that_is_not_ours_is_no_id(app: Any, running: Scene, spoiled: str) -> None:
    await running.logged("one")

    (event,) = await events(app, EVENTS, 1, last=spoiled or None)

    assert [line["message"] for line in json.loads(event["data"])["data"]["logs"]] == ["one"]


async def test_events_of_a_run_that_is_over_end(app: Any, running: Scene) -> None:
    await running.led_to(RunStatus.STOPPING, RunStatus.COMPLETED)

    found = await events(app, EVENTS, 99)

    assert [each["event"] for each in found] == ["RUN_UPDATE", "END"]
