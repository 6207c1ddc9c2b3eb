"""Parts that need an optional dependency: imported late, and missed with the command that brings them."""

from importlib import import_module
from types import ModuleType

from drumbeat.core.errors import MissingExtra


def part(name: str, extra: str, what: str) -> ModuleType:
    """A module of ours. Raises MissingExtra, which names the command to run."""
    try:
        return import_module(f"drumbeat.{name}")
    except ModuleNotFoundError as exc:
        raise MissingExtra(what, extra) from exc


def bench_part(name: str) -> ModuleType:
    """A part of the bench: it needs numpy and pyarrow, which nothing else does."""
    return part(f"bench.{name}", "bench", "the bench")
