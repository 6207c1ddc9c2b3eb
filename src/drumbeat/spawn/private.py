"""Creates folders and files that only this user can read (existing ones keep their mode), and reads a file's last lines."""

import os
from pathlib import Path
from typing import IO

_FOLDER, _FILE = 0o700, 0o600
_BLOCK = 65_536


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


def last_lines(path: Path, lines: int) -> str:
    """Return the last lines of a file, without reading all of it. Raises OSError."""
    with path.open("rb") as file:
        position, tail = file.seek(0, os.SEEK_END), b""
        while position > 0 and tail.count(b"\n") <= lines:
            start = max(position - _BLOCK, 0)
            file.seek(start)
            tail, position = file.read(position - start) + tail, start
    kept = tail.split(b"\n")
    count = lines + 1 if kept[-1] == b"" else lines
    return b"\n".join(kept[-count:]).decode(errors="replace")
