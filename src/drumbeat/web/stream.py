"""Streams the updates of a run or a pool, one per second, over a WebSocket or as server-sent events."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable
from typing import Any

from fastapi import WebSocket, WebSocketDisconnect
from fastapi.responses import StreamingResponse

from drumbeat.core.errors import DrumbeatError
from drumbeat.web.feeds import Feed, Listener
from drumbeat.web.problems import problem, status_of
from drumbeat.web.roles import Caller

LONGEST_MESSAGE = 4096
NORMAL, GOING_AWAY, NOT_TEXT, LOGGED_OUT, TOO_LONG, TRY_LATER = 1000, 1001, 1003, 1008, 1009, 1013
_HELLO = '{"status":"connected"}'
_EVENT_ID = re.compile(r"\d{1,12}-(\d{1,18})")
_UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def feed_or_refuse(websocket: WebSocket, finding: Awaitable[Feed[Any]]) -> Feed[Any] | None:
    """Return the awaited feed of live updates. If it does not exist, refuse the WebSocket with an error and return None."""
    try:
        return await finding
    except DrumbeatError as exc:
        if "websocket.http.response" in websocket.scope.get("extensions", {}):
            await websocket.send_denial_response(problem(status_of(exc), str(exc)))
        else:
            await websocket.close(TRY_LATER if status_of(exc) >= 500 else NOT_TEXT)
        return None


async def stream(websocket: WebSocket, feed: Feed[Any], caller: Caller) -> None:
    """Accept a WebSocket and send it the live updates of a run or pool until there are no more, or until the caller's session
    has ended. Client messages are ignored."""
    await websocket.accept()
    with feed.listening() as listener:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_receive(websocket)), group.create_task(_send(websocket, feed, listener, caller))]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
    codes = [code for task in done if (code := task.result()) is not None]
    if codes:
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await websocket.close(codes[0])


async def _send(websocket: WebSocket, feed: Feed[Any], listener: Listener[Any], caller: Caller) -> int | None:
    """Send live updates until there are no more. Returns the WebSocket close code; None if the client has disconnected."""
    try:
        await websocket.send_text(_HELLO)
        while (frame := await listener.next()) is not None:
            if not caller.is_valid():
                return LOGGED_OUT
            await websocket.send_text(listener.text(frame).decode())
    except (WebSocketDisconnect, RuntimeError):
        return None
    return GOING_AWAY if feed.is_over else NORMAL


async def _receive(websocket: WebSocket) -> int | None:
    """Receive and ignore short text messages. Returns the close code for any other message, None if the client disconnects."""
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        if message.get("bytes") is not None:
            return NOT_TEXT
        if len(message.get("text") or "") > LONGEST_MESSAGE:
            return TOO_LONG


def events(feed: Feed[Any], last_event_id: str | None, caller: Caller) -> StreamingResponse:
    """Return a response that streams the live updates of a run or pool as server-sent events, while the caller is logged in."""
    known = _EVENT_ID.fullmatch(last_event_id or "")
    lines = _event_lines(feed, int(known[1]) if known else None, caller)
    return StreamingResponse(lines, media_type="text/event-stream", headers=_UNBUFFERED)


async def _event_lines(feed: Feed[Any], logs_to: int | None, caller: Caller) -> AsyncIterator[bytes]:
    """Yield live updates as server-sent events. Their ids contain the last log line's id, so that clients can resume there."""
    yield b"retry: 2000\n\n"
    with feed.listening(logs_to) as listener:
        while (frame := await listener.next()) is not None:
            if not caller.is_valid():
                return
            head = f"id: {frame.n}-{frame.logs_to}\nevent: {frame.told.event}\ndata: "
            yield head.encode() + listener.text(frame) + b"\n\n"
    if not feed.is_over:
        yield b"event: END\ndata: {}\n\n"
