"""Options the fleet's commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from drumbeat.core.errors import InvalidInput

PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="A pool's name.")]
FileOption = Annotated[Path | None, typer.Option("--file", help="A policy as a fleet.yml: its fields, times like 90s or 10m.")]
ProviderOption = Annotated[
    str | None, typer.Option("--provider", help="Where its workers run: local or runpod. At first: as the policy says")
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="A field of the policy, such as max_workers=6.")
]

ExpectedServiceOption = Annotated[
    str | None,
    typer.Option("--expected-service", help="How long a job takes, such as 90s: lag_aware uses it until it has seen one end."),
]


def parse_settings(given: Sequence[str] | None) -> dict[str, str | None]:
    """Fields of a policy as they were typed; ``none`` is nothing. Raises InvalidInput."""
    settings: dict[str, str | None] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise InvalidInput(f"expected --set FIELD=VALUE, got {each!r}")
        settings[name.strip()] = None if value.strip().lower() == "none" else value.strip()
    return settings
