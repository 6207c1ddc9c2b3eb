"""Imports modules that need an optional dependency. If that is not installed, the error contains the install command."""

from importlib import import_module
from types import ModuleType

from drumbeat.core.errors import MissingExtra


def import_part(name: str, extra: str, what: str) -> ModuleType:
    """Import the module ``drumbeat.NAME``. If a dependency is not installed, raises MissingExtra with the install command."""
    try:
        return import_module(f"drumbeat.{name}")
    except ModuleNotFoundError as exc:
        raise MissingExtra(what, extra) from exc


def bench_part(name: str) -> ModuleType:
    """Import the module ``drumbeat.bench.NAME``; only these modules need numpy and pyarrow. Raises MissingExtra."""
    return import_part(f"bench.{name}", "bench", "the bench")
