"""The state folder of local spawners: logs, locks and pids of workers. Spawners with the same folder share workers."""

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

from drumbeat.core.errors import InvalidInput, SpawnAmbiguous, SpawnError, SpawnFailed
from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.damaged import DamagedFile, delete, delete_if_possible, read_record
from drumbeat.spawn.names import Name
from drumbeat.spawn.private import private_append, private_folder, write_private
from drumbeat.spawn.tagged import is_recorded_running, pid_namespace

log = logging.getLogger(__name__)

_LONGEST_NAME_BYTES = 230  #: a pool's longest name and ``-worker-N``; with a suffix, it must fit the 255 bytes of a file name
_REF = re.compile(r"\d+:\S+")
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
    return mark.read_text(errors="replace")


def _rename_unless_exists(draft: Path, mark: Path) -> None:
    """Rename a file, unless another process was first. For file systems without hard links; a lock takes their place."""
    with private_append(mark.with_name("store.lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists():
            draft.replace(mark)


class StateDir:
    """Reads and writes the files of a state folder, which are named after pools and workers.

    A worker's process is recorded in up to three files. If one is damaged, another is read instead; a warning is logged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._reported: set[str] = set()  #: damage for which a warning has been logged
        self.scope = hashlib.sha256(os.fsencode(self._path)).hexdigest()[:16]  #: tags the processes of this folder

    def log_path(self, name: Name) -> Path:
        return self._file("logs", name, ".log")

    @property
    def path(self) -> Path:
        return self._path

    @contextmanager
    def starting(self, name: Name) -> Iterator[int]:
        """Lock a worker while it is started. Raises SpawnAmbiguous if another process still has the lock after 10 s: that
        process may be starting the worker.

        Yields the lock's file descriptor: a process that inherits it has the lock too, until it closes the descriptor.
        """
        path = self._file("locks", name, ".lock")
        with _opened(path) as lock:
            _acquire(lock, path, SpawnAmbiguous)
            yield lock.fileno()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Lock the folder while its workers are counted and one is started. Raises SpawnFailed if another process still has
        the lock after 10 s."""
        path = self._path / "slots.lock"
        with _opened(path) as lock:
            _acquire(lock, path, SpawnFailed)
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
            delete_if_possible(self._file("running", name, ".ref"))

    def running(self, pool_id: PoolId, now: datetime) -> Sequence[tuple[Name, str]]:
        """Return workers of a pool that were recorded as running on this machine, each with its process (``pid:start``).

        Records from another machine or from before the last boot are ignored. A record is deleted after a day, unless the
        process still runs.
        """
        found = []
        for path in (self._path / "running" / check_file_name("pool", pool_id)).glob("*.ref"):
            name = pool_id, WorkerId(path.name.removesuffix(".ref"))
            with contextlib.suppress(FileNotFoundError):
                ref, namespace = self._recorded_as_running(path)
                if not ref:
                    self._sweep_damaged(path, self.find_ref(name))
                elif namespace == pid_namespace() and (is_recorded_running(ref) or not _is_old(path, now)):
                    found.append((name, ref))
                elif _is_old(path, now):
                    delete_if_possible(path)
        return found

    def _recorded_as_running(self, path: Path) -> tuple[str, str]:
        """Return process and pid namespace from a record; empty texts if it is damaged. Raises FileNotFoundError."""
        try:
            text = _read_ref(path)
        except DamagedFile as exc:
            self._report(exc)
            return "", ""
        if text is None:
            raise FileNotFoundError(path)
        ref, _, namespace = text.partition(" ")
        return ref, namespace

    def _sweep_damaged(self, path: Path, ref: str | None) -> None:
        """Delete a damaged record, unless the worker's process still runs."""
        if ref is None or not is_recorded_running(ref):
            delete_if_possible(path)

    def note_forked(self, name: Name, ref: str | None) -> None:
        """Record the process of a forked worker, so that other spawners find it; ``ref`` None deletes the record."""
        _write_ref(self._file("forked", name, ".ref"), ref)

    def forget_forked(self, name: Name, ref: str) -> None:
        """Delete the record of a forked worker that has ended, unless a new process already has its name."""
        if ref in {found for known, found in self.forked() if known == name}:
            delete_if_possible(self._file("forked", name, ".ref"))

    def forked(self) -> Sequence[tuple[Name, str]]:
        """Return the recorded forked workers with their processes (``pid:start``), including ended ones."""
        found = []
        for path in self._path.glob("forked/*/*.ref"):
            name = PoolId(path.parent.name), WorkerId(path.name.removesuffix(".ref"))
            try:
                ref = _read_ref(path)
            except DamagedFile as exc:
                self._report(exc)
                ref = self._first_ref(name, "workers", "running")
                if ref is None:
                    delete_if_possible(path)
            if ref is not None:
                found.append((name, ref))
        return found

    def find_ref(self, name: Name) -> str | None:
        """Return the worker's recorded process (``pid:start``); None if there is no record: the starter may have died first."""
        try:
            return _read_ref(self._file("workers", name, ".ref"))
        except DamagedFile as exc:
            self._report(exc)
            return self._first_ref(name, "forked", "running")

    def _first_ref(self, name: Name, *folders: str) -> str | None:
        """Return the worker's process from the first of these folders with a record that is not damaged; None if none has."""
        for folder in folders:
            with contextlib.suppress(DamagedFile):
                if (text := _read_ref(self._file(folder, name, ".ref"))) is not None:
                    return text.partition(" ")[0]
        return None

    def _report(self, damage: DamagedFile) -> None:
        if str(damage) not in self._reported:
            self._reported.add(str(damage))
            log.warning("a worker's record is damaged: %s; it is deleted once the worker has ended", damage)

    def _file(self, folder: str, name: Name, suffix: str) -> Path:
        pool_id, worker_id = name
        return self._path / folder / check_file_name("pool", pool_id) / (check_file_name("worker", worker_id) + suffix)


def _write_ref(path: Path, ref: str | None) -> None:
    """Write a record, or delete it if ``ref`` is None. A folder in the place of the file is deleted. Raises OSError."""
    if ref is None or path.is_dir():
        delete(path)
    if ref is not None:
        draft = path.with_name(f"{path.name}.new")
        write_private(draft, ref.encode())
        draft.replace(path)


def _read_ref(path: Path) -> str | None:
    """Return a recorded process, and what follows it in the record; None without a record. Raises DamagedFile."""
    text = read_record(path)
    if text is not None and not _REF.match(text):
        raise DamagedFile(f"{path} should contain pid:start of a process, but contains {text[:40]!r}")
    return text


def _is_old(path: Path, now: datetime) -> bool:
    return now.timestamp() - path.stat().st_mtime > _KEPT_FOR_SECONDS


def _opened(path: Path) -> IO[bytes]:
    try:
        return private_append(path)
    except OSError as exc:
        raise SpawnFailed(f"expected a state folder that can be written, got: {exc}; choose another folder") from exc


def _acquire(lock: IO[bytes], path: Path, error: type[SpawnError]) -> None:
    """Lock the file, waiting for up to 10 s, then raise ``error``. Closing the file, or the end of the process, releases the
    lock."""
    deadline = time.monotonic() + _LOCKED_FOR_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as exc:
            if time.monotonic() > deadline:
                raise error(
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
