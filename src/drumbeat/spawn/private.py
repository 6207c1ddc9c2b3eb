"""Creates folders and files that only this user can read. Existing ones keep their mode."""

import os
from pathlib import Path
from typing import IO

_FOLDER, _FILE = 0o700, 0o600


def private_folder(path: Path) -> Path:
    """Create a folder and its missing parents, for this user only. Returns the folder."""
    for missing in reversed([each for each in (path, *path.parents) if not each.exists()]):
        missing.mkdir(mode=_FOLDER, exist_ok=True)
    path.mkdir(exist_ok=True)  # raises if the path is not a folder
    return path


def private_append(path: Path) -> IO[bytes]:
    """Open a file for appending; a new file and missing folders are created for this user only."""
    private_folder(path.parent)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _FILE), "ab")


def write_private(path: Path, content: bytes) -> None:
    """Write a file; a new file and missing folders are created for this user only."""
    private_folder(path.parent)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT, _FILE), "wb") as file:
        file.write(content)
