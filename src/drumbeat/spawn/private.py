"""Folders and files for this user alone: made so from their first moment. What is there already keeps its mode."""

import os
from pathlib import Path
from typing import IO

_FOLDER, _FILE = 0o700, 0o600


def private_folder(path: Path) -> Path:
    """Make a folder, and those above it that are missing."""
    for missing in reversed([each for each in (path, *path.parents) if not each.exists()]):
        missing.mkdir(mode=_FOLDER, exist_ok=True)
    path.mkdir(exist_ok=True)  # refuses what is no folder
    return path


def private_append(path: Path) -> IO[bytes]:
    """Open a file to append to, its folder made where it is missing."""
    private_folder(path.parent)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _FILE), "ab")


def write_private(path: Path, content: bytes) -> None:
    """Write a file anew, its folder made where it is missing."""
    private_folder(path.parent)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT, _FILE), "wb") as file:
        file.write(content)
