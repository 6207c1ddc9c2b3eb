"""A wrong clock for what a server starts, by Debian's libfaketime."""

import shutil
from functools import cache
from pathlib import Path

from servers import debian


def _lay_out(tree: Path, flat: Path) -> None:
    for library in tree.rglob("libfaketime.so.1"):
        shutil.copy(library, flat / library.name)


_LIBRARY = debian.Program(
    name="libfaketime.so.1", folder="faketime", packages=("libfaketime",), depending="libfaketime", lay_out=_lay_out
)


@cache
def _library() -> Path:
    return _LIBRARY.unpacked() / "libfaketime.so.1"


def wrong_clock(offset: str) -> str:
    """Lines for an sshd's configuration: the clock of whoever logs in is wrong by ``offset``, such as +30s."""
    return f"SetEnv LD_PRELOAD={_library()} FAKETIME={offset} FAKETIME_DONT_FAKE_MONOTONIC=1\n"
