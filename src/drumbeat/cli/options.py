"""Options that many commands share, and what becomes of them."""

from math import isnan
from typing import Annotated

import typer

from drumbeat.cli.session import control_plane, parse_age, run, settings_for, with_control_plane
from drumbeat.settings import STORE_VARIABLE

__all__ = [
    "JsonOption",
    "LimitOption",
    "PoolArgument",
    "StoreOption",
    "control_plane",
    "parse_age",
    "refuse_nan",
    "run",
    "settings_for",
    "with_control_plane",
]

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        help=f"The store's URL: sqlite:///FILE or postgresql://USER@HOST/DATABASE. Better kept in {STORE_VARIABLE} if it "
        "holds a password. Default: sqlite:///drumbeat.db",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="How many rows at the most.")]
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="A pool's name, or a run's id.")]


def refuse_nan(value: float | None) -> float | None:
    """Callback for options that take a number: Typer lets ``nan`` pass any bounds. Raises BadParameter."""
    if value is not None and isnan(value):
        raise typer.BadParameter("expected a number, got nan")
    return value
