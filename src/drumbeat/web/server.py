"""A server's life: it listens, conducts runs, keeps schedules, and ends all of it when told to."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import uvicorn

from drumbeat.composition.base import triggers_file
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import InvalidSettings
from drumbeat.web.app import make_app
from drumbeat.web.app_state import AppState
from drumbeat.web.settings import WebSettings
from drumbeat.web.slow_requests import most_connections, protocol_within

log = logging.getLogger(__name__)

_LONGEST_GOODBYE = 5  #: seconds that open streams are given when the server ends


class _Server(uvicorn.Server):
    """Leaves the process's signals to whoever started it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    plane: ControlPlane,
    settings: WebSettings,
    ready: Callable[[str], None],
    stop: asyncio.Event,
    clock: Clock | None = None,
    *,
    with_pages: bool = True,
) -> None:
    """Serve until told to stop. Raises InvalidSettings when the address cannot be had."""
    listening = _listen(settings)
    with listening:
        async with house_of(plane, settings, clock or SystemClock(), stop) as house:
            server = _Server(_config(house, with_pages=with_pages))
            house.group.create_task(_until(stop, server, house))
            ready(_address(listening))
            await server.serve(sockets=[listening])
            stop.set()


@asynccontextmanager
async def house_of(plane: ControlPlane, settings: WebSettings, clock: Clock, leave: asyncio.Event) -> AsyncIterator[AppState]:
    """A house and its background work, which is told to leave at the end of the block. Raises InvalidSettings."""
    plane.vault()
    file = settings.triggers or triggers_file()
    desk = plane.triggers(file) if file is not None else None
    async with AsyncExitStack() as beside, asyncio.TaskGroup() as group:
        wake = None if desk is None else partial(desk.work_added, beside=await beside.enter_async_context(desk.in_loop()))
        if settings.conduct and plane.store.traits.keeps_runs:
            group.create_task(plane.bench().orchestrate(leave))
        keeping = group.create_task(desk.keep()) if desk is not None else None
        house = AppState(plane=plane, settings=settings, clock=clock, group=group, triggers=desk, wake=wake)
        try:
            yield house
        finally:
            leave.set()
            house.feeds.close()
            if keeping is not None:
                keeping.cancel()


async def _until(stop: asyncio.Event, server: uvicorn.Server, house: AppState) -> None:
    """Streams end first: nobody waits for them."""
    await stop.wait()
    house.feeds.close()
    server.should_exit = True


def _config(house: AppState, *, with_pages: bool) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(house, with_pages=with_pages),
        http=protocol_within(house.settings.arrives_within, most_connections()),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_LONGEST_GOODBYE,
        h11_max_incomplete_event_size=64 * 1024,
        ws_max_size=1024 * 1024,
        ws_per_message_deflate=False,  # squeezing each frame for each of many watchers would cost more than everything else
    )


def _listen(settings: WebSettings) -> socket.socket:
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((settings.host, settings.port), family=family, backlog=512)
    except (OSError, OverflowError) as exc:
        raise InvalidSettings(
            f"expected to listen on {settings.host}:{settings.port}, got: {exc}; choose another --port"
        ) from exc


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
