"""Finds the type of database that a run or a template puts load on, from the database URL."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from drumbeat.bench.model import LoadMode
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.run import Run, Template
from drumbeat.store.interface import Runs


class DatabaseType(StrEnum):
    """A type of database under test."""

    POSTGRESQL = "postgresql"
    MYSQL = "mysql"
    SQLITE = "sqlite"
    DUCKDB = "duckdb"
    SNOWFLAKE = "snowflake"


RunOrder = Callable[[Sequence[Run]], Sequence[Run]]  #: sorts runs

MOST_SORTED = 1000  #: how many of the newest runs are read to sort or filter them here
_OTHER_NAMES = {"postgres": DatabaseType.POSTGRESQL, "mariadb": DatabaseType.MYSQL}


def database_of(config: Mapping[str, Any], connections: Mapping[str, str] | None = None) -> DatabaseType | None:
    """Return the type of database in a run's or template's configuration; None if it is not known or not supported.

    ``connections``: URLs by connection name.
    """
    document = config.get("document")
    target = config.get("target") or (document.get("target") if isinstance(document, Mapping) else None)
    if not isinstance(target, Mapping):
        return None
    url = target.get("url") or (connections or {}).get(str(target.get("connection")), "")
    return database_type_of(str(url))


async def matching_runs(
    runs: Runs, filters: Mapping[str, Any], database: str | None, order: RunOrder | None, first: int, count: int
) -> Sequence[Run]:
    """Skip ``first`` matching runs, return the next ``count``; newest first unless ``order`` is given. The store sorts only by
    age and knows no database types: if ``order`` or ``database`` is given, only the newest MOST_SORTED runs are searched."""
    if order is None and not database:
        return await runs.list(**filters, offset=first, limit=count)
    found = await runs.list(**filters, limit=MOST_SORTED)
    matching = [run for run in found if not database or database_of(run.config) == database]
    return (order(matching) if order else matching)[first : first + count]


def database_type_of(url: str) -> DatabaseType | None:
    """Return the type of database that a URL names; None if it is not supported."""
    try:
        scheme = urlsplit(url).scheme.lower()
    except ValueError:
        return None
    return _OTHER_NAMES.get(scheme) or (DatabaseType(scheme) if scheme in set(DatabaseType) else None)


async def matching_templates(
    plane: ControlPlane, search: str | None, tag: str | None, database: str = "", load_mode: str = ""
) -> Sequence[Template]:
    """Return the templates that match every filter; an empty filter matches all templates."""
    found = await plane.store.templates.list(search or None, tag or None)
    if database:
        urls = {each.name: each.url for each in await plane.store.connections.list()}
        found = [each for each in found if database_of(each.config, urls) == database]
    return [each for each in found if not load_mode or load_mode == (each.config.get("load_mode") or LoadMode.CONCURRENCY)]
