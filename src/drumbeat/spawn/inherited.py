"""The environment that a started process inherits from this one: everything but the server's access tokens."""

from collections.abc import Mapping

OPERATORS_ONLY = ("DRUMBEAT_TOKEN", "DRUMBEAT_READ_TOKEN")  #: no worker needs them, and workers run other people's code


def inherited(environment: Mapping[str, str], *without: str) -> dict[str, str]:
    """The same environment without the server's tokens and the variables in ``without``."""
    return {name: value for name, value in environment.items() if name not in (*OPERATORS_ONLY, *without)}
