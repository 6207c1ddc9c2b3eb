"""Options that many commands share."""

from math import isnan
from typing import Annotated

import typer

from drumbeat.cli.session import (
    open_plane as open_plane,
    parse_age as parse_age,
    parse_start as parse_start,
    run as run,
    settings_for as settings_for,
    with_control_plane as with_control_plane,
)
from drumbeat.settings import STORE_VARIABLE

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="Store URL: sqlite:///FILE, postgresql://USER@HOST/DATABASE, redis://HOST or "
        f"snowflake://USER@ACCOUNT/DATABASE/SCHEMA. If it holds a password, set {STORE_VARIABLE} instead. "
        f"Default: {STORE_VARIABLE}, else the store in drumbeat.toml, else sqlite:///drumbeat.db",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="Maximum number of rows.")]
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Pool name or run id.")]


def refuse_nan(value: float | None) -> float | None:
    """Option callback: reject ``nan``, which Typer's min and max do not reject. Raises BadParameter."""
    if value is not None and isnan(value):
        raise typer.BadParameter("expected a number, got nan")
    return value
