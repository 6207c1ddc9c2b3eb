"""Reads and deletes the small files in which engines record their workers. Any of them can be damaged, as by a full disk."""

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

#: errors that concern one file only; any other error, such as too many open files, says nothing about the file
_OF_ONE_FILE: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EIO, errno.ENXIO, errno.EINVAL}
)


class DamagedFile(Exception):
    """A file of an engine's state cannot be read, or does not contain what it should. Never raised to users."""


def read_record(path: Path) -> str | None:
    """Return the text of a file; None if there is no such file. Raises DamagedFile, and OSError for other errors."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            return file.read().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as exc:
        raise DamagedFile(f"{path} is not text") from exc
    except OSError as exc:
        if exc.errno in _OF_ONE_FILE:
            raise DamagedFile(f"{path} cannot be read: {exc.strerror}") from exc
        raise


def delete(path: Path) -> None:
    """Delete a file, or what is in its place, such as a folder. Harmless if there is nothing. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def delete_if_possible(path: Path) -> None:
    """Delete like ``delete``; what cannot be deleted stays, but keeps no other file of its folder from being deleted."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _open_at_once(path: str, flags: int) -> int:
    """Open a file. A named pipe is opened without waiting for its other end."""
    return os.open(path, flags | os.O_NONBLOCK)
