"""Copies a store to another. Each is given as a URL or as the name of an environment variable that holds a URL."""

import re
from collections.abc import Mapping

from drumbeat.core.errors import InvalidInput
from drumbeat.settings import STORE_VARIABLE, absolute, load_settings
from drumbeat.store.copy import copy_store
from drumbeat.store.interface import CopyObserver, CopyOptions, CopyReport

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


async def copy_named_stores(
    source: str, target: str, environment: Mapping[str, str], options: CopyOptions, observer: CopyObserver
) -> CopyReport:
    """Copy one store to another. Each is a URL, or the name of an environment variable that holds one. Raises InvalidInput."""
    return await copy_store(store_url(source, environment), store_url(target, environment), options, observer)


def store_url(given: str, environment: Mapping[str, str]) -> str:
    """Return the URL of a store. ``given`` is a URL, or the name of an environment variable that holds one; DRUMBEAT_STORE
    means the store of the settings, even if it is set in a file. Raises InvalidInput."""
    if not _VARIABLE.fullmatch(given):
        return absolute(given)
    if given == STORE_VARIABLE:
        return load_settings(environment).store
    if not environment.get(given):
        raise InvalidInput(f"expected a store's URL in the environment variable {given}, but it is not set")
    return absolute(environment[given])
