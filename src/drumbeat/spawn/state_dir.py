"""The state folder of local spawners: logs, locks and pids of workers. Spawners with the same folder share workers."""

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
from drumbeat.spawn.names import Name
from drumbeat.spawn.private import private_append, private_folder, write_private
from drumbeat.spawn.tagged import is_recorded_running, pid_namespace

_LONGEST_NAME_BYTES = 230  #: a pool's longest name and ``-worker-N``; with a suffix, it must fit the 255 bytes of a file name
_LOCKED_FOR_SECONDS = 10.0
_POLL_SECONDS = 0.01
_KEPT_FOR_SECONDS = 86_400.0  #: after this time the record of an ended process is deleted


def folder_of(path: Path, store: str) -> Path:
    """Return the state folder of a store: ``path`` itself for the first store that uses it, a folder within it for others.

    Two stores can both have a worker-0 in a pool p; in one folder, each would end the other's worker by mistake.
    """
    owner = hashlib.sha256(store.encode()).hexdigest()[:16]
    try:
        private_folder(path)
        first = _first_owner(path, owner)
    except OSError:
        return path  # not writable, so no worker can be started there
    return path if first == owner else path / "stores" / owner


def _first_owner(path: Path, owner: str) -> str:
    """Return the hash of the store that first used the folder; for an unused folder, record ``owner``.

    Safe to call concurrently.
    """
    mark, draft = path / "store", path / f"store.{os.getpid()}.{owner}"
    if not mark.exists():
        write_private(draft, owner.encode())
        try:
            os.link(draft, mark)
        except FileExistsError:
            pass
        except OSError:
            _rename_unless_exists(draft, mark)
        finally:
            draft.unlink(missing_ok=True)
    return mark.read_text()


def _rename_unless_exists(draft: Path, mark: Path) -> None:
    """Rename a file, unless another process was first. For file systems without hard links; a lock takes their place."""
    with private_append(mark.with_name("store.lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists():
            draft.replace(mark)


class StateDir:
    """Reads and writes the files of a state folder, which are named after pools and workers."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self.scope = hashlib.sha256(os.fsencode(self._path)).hexdigest()[:16]  #: tags the processes of this folder

    def log_path(self, name: Name) -> Path:
        return self._file("logs", name, ".log")

    @property
    def path(self) -> Path:
        return self._path

    @contextmanager
    def starting(self, name: Name) -> Iterator[int]:
        """Lock a worker while it is started. Raises SpawnFailed if another process still has the lock after 10 s.

        Yields the lock's file descriptor: a process that inherits it has the lock too, until it closes the descriptor.
        """
        path = self._file("locks", name, ".lock")
        with _opened(path) as lock:
            _acquire(lock, path)
            yield lock.fileno()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Lock the folder while its workers are counted and one is started. Raises SpawnFailed if another process still has
        the lock after 10 s."""
        path = self._path / "slots.lock"
        with _opened(path) as lock:
            _acquire(lock, path)
            yield

    def note_ref(self, name: Name, ref: str | None) -> None:
        """Record which process (``pid:start``) is the worker. Its tags do not show that: its child processes have them too.

        Also records that the worker runs on this machine, so that a later spawner notices its end. If ``ref`` is None, deletes
        both records.
        """
        _write_ref(self._file("workers", name, ".ref"), ref)
        _write_ref(self._file("running", name, ".ref"), None if ref is None else f"{ref} {pid_namespace()}")

    def forget_running(self, name: Name) -> None:
        """Delete the record that the worker runs, because it has ended. Names that cannot be file names have no record."""
        if all(map(is_file_name, name)):
            self._file("running", name, ".ref").unlink(missing_ok=True)

    def running(self, pool_id: PoolId, now: datetime) -> Sequence[tuple[Name, str]]:
        """Return workers of a pool that were recorded as running on this machine, each with its process (``pid:start``).

        Records from another machine or from before the last boot are ignored. A record is deleted after a day, unless the
        process still runs.
        """
        found = []
        for path in (self._path / "running" / check_file_name("pool", pool_id)).glob("*.ref"):
            with contextlib.suppress(FileNotFoundError):
                ref, _, namespace = path.read_text().partition(" ")
                is_old = now.timestamp() - path.stat().st_mtime > _KEPT_FOR_SECONDS
                if is_old and not (namespace == pid_namespace() and is_recorded_running(ref)):
                    path.unlink(missing_ok=True)
                elif namespace == pid_namespace():
                    found.append(((pool_id, WorkerId(path.name.removesuffix(".ref"))), ref))
        return found

    def note_forked(self, name: Name, ref: str | None) -> None:
        """Record the process of a forked worker, so that other spawners find it; ``ref`` None deletes the record."""
        _write_ref(self._file("forked", name, ".ref"), ref)

    def forget_forked(self, name: Name, ref: str) -> None:
        """Delete the record of a forked worker that has ended, unless a new process already has its name."""
        if ref in {found for known, found in self.forked() if known == name}:
            self.note_forked(name, None)

    def forked(self) -> Sequence[tuple[Name, str]]:
        """Return the recorded forked workers with their processes (``pid:start``), including ended ones."""
        found = []
        for path in self._path.glob("forked/*/*.ref"):
            with contextlib.suppress(FileNotFoundError):
                found.append(((PoolId(path.parent.name), WorkerId(path.name.removesuffix(".ref"))), path.read_text()))
        return found

    def find_ref(self, name: Name) -> str | None:
        """Return the worker's recorded process (``pid:start``); None if there is no record: the starter may have died first."""
        try:
            return self._file("workers", name, ".ref").read_text()
        except FileNotFoundError:
            return None

    def _file(self, folder: str, name: Name, suffix: str) -> Path:
        pool_id, worker_id = name
        return self._path / folder / check_file_name("pool", pool_id) / (check_file_name("worker", worker_id) + suffix)


def _write_ref(path: Path, ref: str | None) -> None:
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
        raise SpawnFailed(f"expected a state folder that can be written, got: {exc}; choose another folder") from exc


def _acquire(lock: IO[bytes], path: Path) -> None:
    """Lock the file, waiting for up to 10 s. Closing it, or the end of the process, releases the lock."""
    deadline = time.monotonic() + _LOCKED_FOR_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as exc:
            if time.monotonic() > deadline:
                raise SpawnFailed(
                    f"expected the lock {path} to be free within {_LOCKED_FOR_SECONDS:.0f} s, but another process "
                    f"holds it; find that process with: fuser {path}"
                ) from exc
        time.sleep(_POLL_SECONDS)


def is_file_name(name: str) -> bool:
    """Whether the name of a pool or worker can be the name of a file."""
    bad = name in {"", ".", ".."} or any(character in name for character in "/\\\0")
    return not bad and len(os.fsencode(name)) <= _LONGEST_NAME_BYTES


def check_file_name(what: str, name: str) -> str:
    """Return the name if it is a valid file name. Otherwise raises InvalidInput, since two names must never share a file."""
    if not is_file_name(name):
        raise InvalidInput(
            f"expected a {what} id that can be a file name (no slash, not '.' or '..', 1 to {_LONGEST_NAME_BYTES} bytes), "
            f"got {name!r}"
        )
    return name
