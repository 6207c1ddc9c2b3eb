"""``drumbeat serve``: the HTTP API and the dashboard."""

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from drumbeat.cli.options import StoreOption, with_control_plane
from drumbeat.cli.render import say
from drumbeat.composition.plane import ControlPlane, logging_to_stderr, until_stopped
from drumbeat.core.errors import MissingExtra


def serve(
    host: Annotated[
        str, typer.Option("--host", help="Where to listen. Beyond loopback a token is needed, in DRUMBEAT_TOKEN.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="On which port; 0 takes a free one.")] = 8321,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="A name that a proxy before this server is reached by; may repeat.")
    ] = None,
    triggers: Annotated[
        Path | None, typer.Option("--triggers", help="The file of triggers. Default: triggers.yml, if it is there.")
    ] = None,
    conduct: Annotated[
        bool, typer.Option("--conduct/--no-conduct", help="Whether benchmark runs are orchestrated from here.")
    ] = True,
    store: StoreOption = None,
) -> None:
    """Serve the dashboard and the HTTP API until interrupted.

    Without DRUMBEAT_TOKEN it listens on this machine only, and everybody on it may do everything. With it, an operator logs in
    with that token; DRUMBEAT_READ_TOKEN lets in those who may only look. Put a proxy that speaks TLS before it on a network.
    """
    try:
        from drumbeat.web import server
        from drumbeat.web.settings import load_web_settings
    except ModuleNotFoundError as exc:
        raise MissingExtra("the dashboard", "web") from exc
    settings = load_web_settings(os.environ, host=host, port=port, names=tuple(name or ()), triggers=triggers, conduct=conduct)

    def ready(address: str) -> None:
        say(f"serving at {address}")
        sys.stdout.flush()

    async def work(plane: ControlPlane) -> None:
        stop = asyncio.Event()
        with until_stopped(stop):
            await server.serve(plane, settings, ready, stop)

    with logging_to_stderr(logging.INFO):
        with_control_plane(store, work, create=True)
