"""Imports a user's objects by name (``module:object``), also from the current folder."""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from drumbeat.core.errors import InvalidInput


def import_object(spec: str, what: str, expected: str) -> Any:
    """Import the object ``module:object``. Raises InvalidInput; ``what`` and ``expected`` are words for its message."""
    module, colon, path = spec.partition(":")
    if not colon or not module.strip() or not path.strip():
        raise InvalidInput(f"{what} {spec!r}: expected module:object")
    try:
        with modules_of_this_folder():
            found: Any = importlib.import_module(module)
    except Exception as exc:
        raise InvalidInput(f"{what} {spec!r}: cannot import {module!r}: {type(exc).__name__}: {exc}") from exc
    for name in path.split("."):
        if not hasattr(found, name):
            raise InvalidInput(f"{what} {spec!r}: module {module!r} has no {path!r}; expected {expected} of that module")
        found = getattr(found, name)
    return found


@contextmanager
def modules_of_this_folder() -> Iterator[None]:
    """During the block, Python also imports modules from the current folder."""
    here = os.getcwd()
    if {"", here} & set(sys.path):
        yield
        return
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)
