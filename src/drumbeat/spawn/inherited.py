"""The environment variables that a new process inherits from this one: all except the web server's access tokens."""

from collections.abc import Mapping

OPERATORS_ONLY = ("DRUMBEAT_TOKEN", "DRUMBEAT_READ_TOKEN")  #: not given to workers, which run other people's code


def inherited(environment: Mapping[str, str], *without: str) -> dict[str, str]:
    """Return the environment without the web server's access tokens and without the variables in ``without``."""
    return {name: value for name, value in environment.items() if name not in (*OPERATORS_ONLY, *without)}
