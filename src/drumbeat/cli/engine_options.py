"""Options and warnings about engines (places where workers run) that several commands share."""

from typing import Annotated

import typer

from drumbeat.cli.options import settings_for
from drumbeat.cli.render import errors
from drumbeat.composition.engines import check_store_url
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.engine import DEFAULT_ENGINE


def tidy_names(engines: str | None) -> str | None:
    """Option callback: return a list of engines without spaces, such as ``a,b``."""
    return None if engines is None else ",".join(name.strip() for name in engines.split(","))


EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME[,NAME…]",
        callback=tidy_names,
        help="The engine that runs the workers; with several, the first is preferred. Default: local (this machine)",
    ),
]


def refuse_local_store(store: str | None, engines: str | None) -> None:
    """Raise InvalidSettings if workers of these engines cannot reach the store. Called before the store is created."""
    if engines is not None:
        check_store_url(settings_for(store), engines)


def warn_of_store(plane: ControlPlane, engines: str | None) -> None:
    """Print a warning if workers of these engines might not be able to reach the store, judged by its URL."""
    warning = plane.engines.reach_warning(engines) if engines and engines != DEFAULT_ENGINE else None
    if warning is not None:
        errors.print(f"drumbeat: {warning}", style="yellow", soft_wrap=True)
