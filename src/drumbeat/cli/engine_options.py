"""Options and warnings about engines (places where workers run) that several commands share."""

from typing import Annotated

import typer

from drumbeat.cli.render import errors
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.engine import DEFAULT_ENGINE

EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME[,NAME…]",
        help="The engine that runs the workers; with several, the first is preferred. Default: local (this machine)",
    ),
]


def warn_of_store(plane: ControlPlane, engines: str | None) -> None:
    """Print a warning if workers of these engines may not reach the store by its URL."""
    warning = plane.engines.reach_warning(engines) if engines and engines != DEFAULT_ENGINE else None
    if warning is not None:
        errors.print(f"drumbeat: {warning}", style="yellow", soft_wrap=True)
