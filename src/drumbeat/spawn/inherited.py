"""The environment variables that a new process inherits from this one: all except secrets that no worker needs."""

from collections.abc import Mapping

#: not given to workers, which run other people's code: the web server's access tokens, and the key of the language model
OPERATORS_ONLY = ("DRUMBEAT_TOKEN", "DRUMBEAT_READ_TOKEN", "DRUMBEAT_LANGUAGE_MODEL_KEY")


def inherited(environment: Mapping[str, str], *without: str) -> dict[str, str]:
    """Return the environment without the variables in OPERATORS_ONLY and in ``without``."""
    return {name: value for name, value in environment.items() if name not in (*OPERATORS_ONLY, *without)}
