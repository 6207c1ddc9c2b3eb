"""Copies a store, or exports its runs, to another store. A store is given by its URL or by an environment variable."""

import re
from collections.abc import Mapping, Sequence

from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import RunId
from drumbeat.settings import STORE_VARIABLE, absolute, load_settings
from drumbeat.store.copy import copy_store, export_runs
from drumbeat.store.interface import CopyObserver, CopyOptions, CopyReport, ExportedRun

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


async def copy_named_stores(
    source: str, target: str, environment: Mapping[str, str], options: CopyOptions, observer: CopyObserver
) -> CopyReport:
    """Copy one store to another. Each is a URL, or the name of an environment variable that holds one. Raises InvalidInput."""
    return await copy_store(store_url(source, environment), store_url(target, environment), options, observer)


async def export_to_named_store(
    source: str, target: str, environment: Mapping[str, str], run_ids: Sequence[RunId], observer: CopyObserver
) -> Sequence[ExportedRun]:
    """Export ended runs from the store at the URL ``source``. ``target`` is a URL, or the name of a variable that holds one."""
    return await export_runs(source, store_url(target, environment), run_ids, observer)


def store_url(given: str, environment: Mapping[str, str]) -> str:
    """Return the URL of a store. ``given`` is a URL, or the name of an environment variable that holds one.

    The name DRUMBEAT_STORE means the store of the settings, which a settings file can also name. Raises InvalidInput."""
    if not _VARIABLE.fullmatch(given):
        return absolute(given)
    if given == STORE_VARIABLE:
        return load_settings(environment).store
    if not environment.get(given):
        raise InvalidInput(f"expected a store's URL in the environment variable {given}, but it is not set")
    return absolute(environment[given])
