"""Imports modules that need an optional dependency; a missing one raises an error with the install command."""

from importlib import import_module
from types import ModuleType

from drumbeat.core.errors import MissingExtra


def part(name: str, extra: str, what: str) -> ModuleType:
    """Import ``drumbeat.name``. Raises MissingExtra, which names the install command."""
    try:
        return import_module(f"drumbeat.{name}")
    except ModuleNotFoundError as exc:
        raise MissingExtra(what, extra) from exc


def bench_part(name: str) -> ModuleType:
    """Import a module of the bench, the only part that needs numpy and pyarrow."""
    return part(f"bench.{name}", "bench", "the bench")
