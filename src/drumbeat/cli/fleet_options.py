"""Options shared by the fleet commands."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from drumbeat.cli.engine_options import tidy_names
from drumbeat.core.errors import InvalidInput

PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Pool name.")]
FileOption = Annotated[Path | None, typer.Option("--file", help="Policy file (fleet.yml), with durations such as 90s or 10m.")]
ProviderOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        "--provider",
        metavar="NAME[,NAME…]",
        callback=tidy_names,
        help="The engine that runs the workers; with several, the first is preferred. Default: the engine of the policy",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="A policy field, such as max_workers=6. Repeatable."),
]

ExpectedServiceOption = Annotated[
    str | None,
    typer.Option("--expected-service", help="Expected job duration, such as 90s; lag_aware uses it until a job has finished."),
]


def parse_settings(given: Sequence[str] | None) -> dict[str, str | None]:
    """Parse ``--set FIELD=VALUE`` options to policy fields; the value ``none`` becomes None. Raises InvalidInput."""
    settings: dict[str, str | None] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise InvalidInput(f"expected --set FIELD=VALUE, got {each!r}")
        settings[name.strip()] = None if value.strip().lower() == "none" else value.strip()
    return settings
