"""What a process that is started here inherits of this one's environment: all but what lets people in at this server."""

from collections.abc import Mapping

OPERATORS_ONLY = ("DRUMBEAT_TOKEN", "DRUMBEAT_READ_TOKEN")  #: no worker needs them, and workers run other people's code


def inherited(environment: Mapping[str, str], *without: str) -> dict[str, str]:
    """The same environment without the server's tokens, and without what else is named."""
    return {name: value for name, value in environment.items() if name not in (*OPERATORS_ONLY, *without)}
