"""A WebSocket spoken straight to an application, in this process and on this loop: no server, no wire."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any


class Socket:
    """The client's end."""

    def __init__(self) -> None:
        self._to_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._from_app: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.status: int | None = None  #: of an answer instead of a connection

    async def send_to_app(self) -> dict[str, Any]:
        return await self._to_app.get()

    async def heard_from_app(self, message: Mapping[str, Any]) -> None:
        await self._from_app.put(dict(message))

    def say(self, **message: Any) -> None:
        self._to_app.put_nowait({"type": "websocket.receive", **message})

    def hang_up(self) -> None:
        self._to_app.put_nowait({"type": "websocket.disconnect", "code": 1000})

    async def opened(self) -> bool:
        self._to_app.put_nowait({"type": "websocket.connect"})
        first = await self._from_app.get()
        self.status = first.get("status")
        return bool(first["type"] == "websocket.accept")

    async def heard(self) -> dict[str, Any]:
        """The next message: its JSON, or how it was closed."""
        message = await self._from_app.get()
        if message["type"] == "websocket.close":
            return {"closed": message["code"]}
        told: dict[str, Any] = json.loads(message["text"])
        return told


@asynccontextmanager
async def connected(app: Any, path: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[Socket]:
    """A connection to a path; it is for the block to see whether it was accepted."""
    socket = Socket()
    scope = {
        "type": "websocket",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "ws",
        "headers": [(b"host", b"127.0.0.1:8321"), *((k.encode(), v.encode()) for k, v in (headers or {}).items())],
        "subprotocols": [],
        "client": ("127.0.0.1", 4711),
        "server": ("127.0.0.1", 8321),
        "extensions": {"websocket.http.response": {}},
    }
    async with asyncio.TaskGroup() as group:
        task = group.create_task(app(scope, socket.send_to_app, socket.heard_from_app))
        try:
            yield socket
        finally:
            socket.hang_up()
            done, _ = await asyncio.wait([task], timeout=60)
            task.cancel()
            assert done, "expected the application to leave with its client"
