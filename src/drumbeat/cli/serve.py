"""drumbeat serve: the HTTP API and the dashboard."""

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
        str, typer.Option("--host", help="Address to listen on. Other than loopback needs a token in DRUMBEAT_TOKEN.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port to listen on; 0 for any free port.")] = 8321,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="Host name of a reverse proxy in front of this server. Repeatable.")
    ] = None,
    triggers: Annotated[
        Path | None,
        typer.Option("--triggers", help="Triggers file. Default: triggers.yml or trigger_registry.yml, if there is one"),
    ] = None,
    conduct: Annotated[
        bool, typer.Option("--conduct/--no-conduct", help="Whether this server orchestrates benchmark runs.")
    ] = True,
    store: StoreOption = None,
) -> None:
    """Serve the dashboard and the HTTP API until interrupted.

    Without DRUMBEAT_TOKEN it listens on this machine only, and every local user has full access. With DRUMBEAT_TOKEN,
    operators log in with that token; DRUMBEAT_READ_TOKEN gives read-only access. On a network, put a TLS proxy in front of it.
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
