"""Runs the web server with its background work (orchestrating runs, firing triggers) until it is told to stop."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from drumbeat.composition.base import triggers_file
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import InvalidSettings, MissingExtra
from drumbeat.web.app import make_app
from drumbeat.web.app_state import AppState
from drumbeat.web.settings import WebSettings
from drumbeat.web.slow_requests import http_protocol_with_limits, most_connections

if TYPE_CHECKING:
    from drumbeat.composition.plane import BenchService

log = logging.getLogger(__name__)

_SHUTDOWN_SECONDS = 5  #: time for open requests to end when the server stops


class _Server(uvicorn.Server):
    """A uvicorn server that does not handle signals, because its caller does."""

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
    """Run the web server until ``stop`` is set. Raises InvalidSettings if the server cannot listen on the address."""
    listening = _listen(settings)
    with listening:
        async with open_app_state(plane, settings, clock or SystemClock(), stop) as state:
            server = _Server(_config(state, with_pages=with_pages))
            state.group.create_task(_stop_server(stop, server, state))
            ready(_address(listening))
            await server.serve(sockets=[listening])
            stop.set()


@asynccontextmanager
async def open_app_state(
    plane: ControlPlane, settings: WebSettings, clock: Clock, stop: asyncio.Event
) -> AsyncIterator[AppState]:
    """Start a server's background work (runs, triggers), yield its shared objects; stop the work at the end of the block."""
    plane.vault()
    file = settings.triggers or triggers_file()
    triggers = plane.triggers(file) if file is not None else None
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        on_push = None
        if triggers is not None:
            on_push = partial(triggers.work_added, beside=await stack.enter_async_context(triggers.in_loop()))
        if settings.conduct and plane.store.traits.keeps_runs and (bench := _installed_bench(plane)) is not None:
            group.create_task(bench.orchestrate(stop))
        schedules = group.create_task(triggers.keep()) if triggers is not None else None
        state = AppState(plane=plane, settings=settings, clock=clock, group=group, triggers=triggers, on_push=on_push)
        try:
            yield state
        finally:
            stop.set()
            state.close()
            if schedules is not None:
                schedules.cancel()


def _installed_bench(plane: ControlPlane) -> "BenchService | None":
    """Return the service that orchestrates runs; None, with a warning in the log, if the bench extra is not installed."""
    try:
        return plane.bench()
    except MissingExtra as exc:
        log.warning("this server does not orchestrate benchmark runs: %s", exc)
        return None


async def _stop_server(stop: asyncio.Event, server: uvicorn.Server, state: AppState) -> None:
    """Stop the server once ``stop`` is set. Streams are ended first, because uvicorn waits for open requests."""
    await stop.wait()
    state.feeds.close()
    server.should_exit = True


def _config(state: AppState, *, with_pages: bool) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(state, with_pages=with_pages),
        http=http_protocol_with_limits(state.settings.arrives_within, most_connections()),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        ws_max_size=1024 * 1024,
        ws_per_message_deflate=False,  # compressing each frame for each viewer would cost the most CPU time
    )


def _listen(settings: WebSettings) -> socket.socket:
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((settings.host, settings.port), family=family, backlog=512)
    except (OSError, OverflowError) as exc:
        raise InvalidSettings(f"cannot listen on {settings.host}:{settings.port}: {exc}; choose another --port") from exc


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
