"""The environment variables that a new process inherits from this one: all except secrets that no worker needs."""

from collections.abc import Mapping, Set
from typing import Any

#: not given to workers, which run other people's code: the web server's access tokens, and the key of the language model
OPERATORS_ONLY = ("DRUMBEAT_TOKEN", "DRUMBEAT_READ_TOKEN", "DRUMBEAT_LANGUAGE_MODEL_KEY")

WITHHELD = "DRUMBEAT_WITHHELD"  #: tells a worker which variables of its starter it did not get, separated by commas

#: by kind of engine: the variables with its credentials, unless a setting such as token_variable names others
_CREDENTIALS: Mapping[str, Mapping[str, str]] = {
    "runpod": {"": "RUNPOD_API_KEY"},
    "ray": {"token_variable": "RAY_AUTH_TOKEN"},
}


def inherited(environment: Mapping[str, str], *without: str) -> dict[str, str]:
    """Return the environment without the variables in OPERATORS_ONLY and in ``without``."""
    return {name: value for name, value in environment.items() if name not in (*OPERATORS_ONLY, *without)}


def inherited_by_worker(environment: Mapping[str, str], credentials: Set[str]) -> dict[str, str]:
    """Return the environment that a worker on this machine inherits: without ``credentials``, whose names are in WITHHELD."""
    withheld = withheld_names(environment) | (credentials & environment.keys())
    return {**inherited(environment, *withheld), **({WITHHELD: ",".join(sorted(withheld))} if withheld else {})}


def withheld_names(environment: Mapping[str, str]) -> frozenset[str]:
    """Return the variables that this process did not get from the one that started it, because they are credentials."""
    return frozenset(environment.get(WITHHELD, "").split(",")) - {"", *environment}


def credentials_of(kind: str, table: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the variables with an engine's credentials. In its table in engines.toml, settings such as
    ``token_variable`` name variables."""
    named = {key: value for key, value in table.items() if key.endswith("_variable")}
    found = {**_CREDENTIALS.get(kind, {}), **named}.values()
    return frozenset(value for value in found if isinstance(value, str) and value)


def engine_credentials(engines: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of the variables with credentials of engines, which only the processes that start workers need.

    ``engines``: by name, the engine's table in engines.toml. The engine runpod exists without a table."""
    return credentials_of("runpod", {}).union(*(credentials_of(table.get("kind", ""), table) for table in engines.values()))
