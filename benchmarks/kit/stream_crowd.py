"""Clients that watch a run's stream or send requests: stream_crowd.py ADDRESS RUN WATCHERS RATE SECONDS. Prints JSON."""

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field

import httpx
import websockets

PATHS = ("/health", "/api/v1/runs/{run}", "/api/v1/info", "/api/v1/runs?limit=20")


@dataclass(slots=True)
class Heard:
    """What the clients received: times between frames, and response times."""

    frames: int = 0
    bytes: int = 0
    gaps: list[float] = field(default_factory=list)  #: seconds between two frames of one subscriber
    answers: list[float] = field(default_factory=list)  #: seconds
    failed: list[str] = field(default_factory=list)


async def watch(address: str, run_id: str, heard: Heard, until: float) -> None:
    url = f"ws{address.removeprefix('http')}/api/v1/runs/{run_id}/stream"
    try:
        async with websockets.connect(url, open_timeout=30) as socket:
            last = None
            while (left := until - time.monotonic()) > 0:
                message = await asyncio.wait_for(socket.recv(), left + 5)
                now = time.monotonic()
                if last is not None:
                    heard.gaps.append(now - last)
                last, heard.frames, heard.bytes = now, heard.frames + 1, heard.bytes + len(message)
    except (OSError, TimeoutError, websockets.WebSocketException) as exc:
        heard.failed.append(f"stream: {type(exc).__name__}: {exc}")


async def ask(client: httpx.AsyncClient, path: str, heard: Heard) -> None:
    began = time.monotonic()
    try:
        answer = await client.get(path)
        heard.answers.append(time.monotonic() - began)
        if answer.status_code >= 400:
            heard.failed.append(f"{answer.status_code} {path}")
    except httpx.HTTPError as exc:
        heard.failed.append(f"{type(exc).__name__} {path}")


async def ask_on(address: str, run_id: str, a_second: float, heard: Heard, until: float) -> None:
    """Send requests at a fixed rate, without waiting for earlier answers."""
    paths = [path.format(run=run_id) for path in PATHS]
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=30) as client, asyncio.TaskGroup() as group:
        due, n = time.monotonic(), 0
        while due < until:
            await asyncio.sleep(max(due - time.monotonic(), 0))
            group.create_task(ask(client, paths[n % len(paths)], heard))
            due, n = due + 1 / a_second, n + 1


async def main(address: str, run_id: str, watchers: int, a_second: float, seconds: float) -> None:
    heard, until = Heard(), time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for n in range(watchers):
            group.create_task(watch(address, run_id, heard, until))
            if n % 20 == 19:
                await asyncio.sleep(0.05)
        group.create_task(ask_on(address, run_id, a_second, heard, until))
    told = {"frames": heard.frames, "bytes": heard.bytes, "gaps": heard.gaps, "answers": heard.answers, "failed": heard.failed}
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5])))
