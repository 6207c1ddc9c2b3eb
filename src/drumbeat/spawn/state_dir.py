"""The folder in which a local spawner keeps its workers' logs, locks and pids; whoever shares it shares the workers."""

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

from drumbeat.core.errors import InvalidInput, SpawnFailed
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.private import private_append, private_folder, write_private
from drumbeat.spawn.tagged import Name, here, is_noted_alive

_LONGEST_NAME_BYTES = 200
_LOCKED_FOR_SECONDS = 10.0
_POLL_SECONDS = 0.01
_KEPT_FOR_SECONDS = 86_400.0  #: a note of a process that is over


def folder_of(path: Path, store: str) -> Path:
    """Where the workers of a store are kept: the folder itself for the store that used it first, one within it for any other.

    Two stores may both have a worker-0 of a pool p; in one folder each would take the other's for its own, and end it.
    """
    owner = hashlib.sha256(store.encode()).hexdigest()[:16]
    try:
        private_folder(path)
        first = _first_owner(path, owner)
    except OSError:
        return path  # nothing can be written, so no worker can be started there
    return path if first == owner else path / "stores" / owner


def _first_owner(path: Path, owner: str) -> str:
    """Who used a folder first; us, if nobody has. Of several at once one is the first for all of them."""
    mark, draft = path / "store", path / f"store.{os.getpid()}.{owner}"
    if not mark.exists():
        write_private(draft, owner.encode())
        with contextlib.suppress(FileExistsError):
            os.link(draft, mark)
        draft.unlink(missing_ok=True)
    return mark.read_text()


class StateDir:
    """Files named for pools and workers."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self.scope = hashlib.sha256(os.fsencode(self._path)).hexdigest()[:16]  #: tells this folder's processes from others'

    def log_path(self, name: Name) -> Path:
        return self._file("logs", name, ".log")

    @property
    def path(self) -> Path:
        return self._path

    @contextmanager
    def starting(self, name: Name) -> Iterator[int]:
        """Only one process and thread at a time. Raises SpawnFailed when another holds it for longer than a start takes.

        Gives the lock's file: whoever gets a copy of it holds the lock too, until it is closed.
        """
        path = self._file("locks", name, ".lock")
        with _opened(path) as lock:
            _acquire(lock, path)
            yield lock.fileno()

    def note_ref(self, name: Name, ref: str | None) -> None:
        """Write down which process is this worker, so that no child that outlives it is taken for it. None: not known now.

        And that it runs on this machine, so that a later process sees when it is over.
        """
        _note(self._file("workers", name, ".ref"), ref)
        _note(self._file("running", name, ".ref"), None if ref is None else f"{ref} {here()}")

    def forget_running(self, name: Name) -> None:
        """Drop the note that it runs: its worker is known to be gone."""
        self._file("running", name, ".ref").unlink(missing_ok=True)

    def running(self, pool_id: PoolId, now: datetime) -> Sequence[tuple[Name, str]]:
        """Workers of a pool that were started on this machine and are not known to be gone, with their refs.

        What was noted on another machine, or before this one was last started, says nothing. A note is dropped after a day
        unless its process lives.
        """
        found = []
        for path in (self._path / "running" / _file_name("pool", pool_id)).glob("*.ref"):
            with contextlib.suppress(FileNotFoundError):
                ref, _, place = path.read_text().partition(" ")
                is_old = now.timestamp() - path.stat().st_mtime > _KEPT_FOR_SECONDS
                if is_old and not (place == here() and is_noted_alive(ref)):
                    path.unlink(missing_ok=True)
                elif place == here():
                    found.append(((pool_id, WorkerId(path.name.removesuffix(".ref"))), ref))
        return found

    def note_forked(self, name: Name, ref: str | None) -> None:
        """Write down a worker that was forked: its environment shows no tags, so this is how it is found."""
        _note(self._file("forked", name, ".ref"), ref)

    def forget_forked(self, name: Name, ref: str) -> None:
        """It is over; another that has its name by now is left."""
        if ref in {found for known, found in self.forked() if known == name}:
            self.note_forked(name, None)

    def forked(self) -> Sequence[tuple[Name, str]]:
        """Workers that were forked, with their refs: those that are over too, until they are forgotten."""
        found = []
        for path in self._path.glob("forked/*/*.ref"):
            with contextlib.suppress(FileNotFoundError):
                found.append(((PoolId(path.parent.name), WorkerId(path.name.removesuffix(".ref"))), path.read_text()))
        return found

    def find_ref(self, name: Name) -> str | None:
        """The process noted last; None when its starter died before it could note it."""
        try:
            return self._file("workers", name, ".ref").read_text()
        except FileNotFoundError:
            return None

    def _file(self, folder: str, name: Name, suffix: str) -> Path:
        pool_id, worker_id = name
        return self._path / folder / _file_name("pool", pool_id) / (_file_name("worker", worker_id) + suffix)


def _note(path: Path, ref: str | None) -> None:
    if ref is None:
        path.unlink(missing_ok=True)
        return
    draft = path.with_name(f"{path.name}.new")
    write_private(draft, ref.encode())
    draft.replace(path)


def _opened(path: Path) -> IO[bytes]:
    try:
        return private_append(path)
    except OSError as exc:
        raise SpawnFailed(f"expected a state folder that can be written, got: {exc}; choose another") from exc


def _acquire(lock: IO[bytes], path: Path) -> None:
    """Closing the file releases it, and so does the death of its process."""
    deadline = time.monotonic() + _LOCKED_FOR_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as exc:
            if time.monotonic() > deadline:
                raise SpawnFailed(
                    f"expected {path} to be free within {_LOCKED_FOR_SECONDS:.0f} s; another process holds it: "
                    f"see who with: fuser {path}"
                ) from exc
        time.sleep(_POLL_SECONDS)


def _file_name(what: str, name: str) -> str:
    """The name itself, if it can be a file's. Raises InvalidInput otherwise: two names must never meet in one file."""
    bad = name in {"", ".", ".."} or any(character in name for character in "/\\\0")
    if bad or len(os.fsencode(name)) > _LONGEST_NAME_BYTES:
        raise InvalidInput(
            f"expected a {what} id that can be a file's name (no slash, not '.' or '..', 1 to {_LONGEST_NAME_BYTES} bytes), "
            f"got {name!r}"
        )
    return name
