"""The folder that this machine shares with the nodes of a cluster: for each worker a run folder, and a lock for its starts.

FOLDER/slots.lock                 held while slots are counted
FOLDER/SCOPE/locks/KEY            held while a worker is started or ended, also by sbatch itself
FOLDER/SCOPE/workers/KEY/         the run folder of a worker; a rename creates it, so that it is never half filled:
    record                        pool, worker, run and time, as JSON
    submitted-RUN, script-RUN     the script that Slurm runs, and the script that it calls, which runs the worker
    env                           the environment with its secrets; the job deletes it as soon as it has read it
    job                           the job's id, once sbatch has printed it
    claim/job                     the id of the one job that runs the worker
    claim/begun                   an empty file, created by the shell that then executes the worker
    drain, terminate              empty files that ask the job to drain or end, in case it missed the signal
    log, exit                     the worker's output and its exit code
    slurm.log                     what Slurm itself writes about the job
"""

import asyncio
import fcntl
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar
from uuid import uuid4

from drumbeat.core.clock import Clock
from drumbeat.core.errors import SpawnCause, Unanswered
from drumbeat.core.plain import time_span
from drumbeat.spawn.damaged import DamagedFile, delete_if_possible, read_record
from drumbeat.spawn.private import private_folder, write_private

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

_POLL: Final = timedelta(milliseconds=20)
_KEPT: Final = timedelta(days=7)  #: how long the files of an ended worker are kept if it is not terminated


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmRun:
    """One start of a worker, as read from its run folder."""

    path: Path
    pool_id: str
    worker_id: str
    run: str
    created_at: datetime
    job_id: int | None = None  #: the job that runs the worker, or else the submitted one; None: sbatch has not answered yet

    is_claimed: bool = False  #: whether a job has begun to run the worker

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def slurm_log(self) -> Path:
        return self.path / "slurm.log"

    @property
    def script(self) -> Path:
        return self.path / f"script-{self.run}"

    @property
    def submitted(self) -> Path:
        return self.path / f"submitted-{self.run}"

    @property
    def exit_code(self) -> int | None:
        """The worker's exit code, which the job writes to a file; None if it has not done so, or if the file is damaged."""
        return _read_number(self.path / "exit")

    def note_job(self, job_id: int) -> None:
        """Write the job's id, which sbatch has printed, to the run folder."""
        _write_whole(self.path / "job", f"{job_id}\n".encode())

    def mark(self, name: str) -> None:
        """Create an empty file ``name`` in the run folder, as a signal to the Slurm job. Does nothing if the folder is gone."""
        with suppress(FileNotFoundError):
            os.close(os.open(self.path / name, os.O_CREAT | os.O_WRONLY, 0o600))


class SharedFolder:
    """The run folders and locks of one store. Methods block, so call them through ``in_thread``, except the async locks."""

    def __init__(self, path: Path, scope: str, clock: Clock) -> None:
        self._root = path.expanduser()
        self._path = self._root / scope
        self._clock = clock
        self._reported: set[str] = set()  #: damage for which a warning has been logged

    def prepare(self) -> None:
        """Create the folders, and delete files of workers that ended long ago. Raises Unanswered."""
        try:
            for path in (self._root, self._path, self._path / "workers", self._path / "locks"):
                private_folder(path)
            if self._path.stat().st_uid != os.geteuid():
                raise Unanswered(f"expected the folder {self._path} to be this user's, but it is not; choose another folder")
            self._path.chmod(0o700)
            self._sweep()
        except OSError as exc:
            raise self.failure(exc) from exc

    def failure(self, error: OSError) -> Unanswered:
        """Return the exception for an error of the file system; its message is one line with advice."""
        return Unanswered(
            f"cannot write to the folder {self._root}: {error.strerror}; "
            f"choose another folder, which this machine and the nodes share",
            cause=SpawnCause.BAD_REQUEST,
        )

    # Runs

    def run_path(self, key: str) -> Path:
        return self._path / "workers" / key

    def find(self, key: str) -> SlurmRun | None:
        """Return the run with this key, which is the name of its run folder; None if there is none, or if it is damaged."""
        try:
            return self._read_run(self.run_path(key))
        except DamagedFile as exc:
            if str(exc) not in self._reported:
                self._reported.add(str(exc))
                log.warning("a run folder is damaged: %s; it is deleted once its job has ended", exc)
            return None

    def _read_run(self, path: Path) -> SlurmRun | None:
        """Return the run with this run folder; None if there is no such folder. Raises DamagedFile."""
        text = read_record(path / "record")
        if text is None:
            if path.exists():
                raise DamagedFile(f"{path / 'record'} is missing")
            return None
        claimed = _read_number(path / "claim" / "job")
        try:
            record: Mapping[str, Any] = json.loads(text)
            return SlurmRun(
                path=path,
                pool_id=str(record["pool"]),
                worker_id=str(record["worker"]),
                run=str(record["run"]),
                created_at=datetime.fromtimestamp(record["time"], UTC),
                job_id=_read_number(path / "job") if claimed is None else claimed,
                is_claimed=claimed is not None,
            )
        except (ValueError, TypeError, KeyError, OverflowError) as exc:
            raise DamagedFile(f"{path / 'record'} should contain pool, worker, run and time as JSON ({exc!r})") from exc

    def damaged(self, whole: Set[str] = frozenset()) -> Sequence[str]:
        """Return the keys of the run folders whose record is damaged. ``whole``: keys that need not be checked."""
        others = [key for key in _names(self._path / "workers") if key not in whole]
        return [key for key in others if self.find(key) is None and os.path.lexists(self.run_path(key))]

    def is_older(self, key: str, span: timedelta) -> bool:
        """Whether a run folder was last changed longer than this ago. False if there is no such folder."""
        with suppress(FileNotFoundError):
            return self.run_path(key).lstat().st_mtime < (self._clock.now() - span).timestamp()
        return False

    def runs(self) -> Sequence[SlurmRun]:
        """Return all runs of this store."""
        return list(self._runs(self._path))

    def all_runs(self) -> Sequence[SlurmRun]:
        """Return the runs of all stores that use the same folder."""
        return [run for scope in _names(self._root) for run in self._runs(self._root / scope)]

    def _runs(self, scope: Path) -> Iterator[SlurmRun]:
        of_scope = SharedFolder(self._root, scope.name, self._clock)
        of_scope._reported = self._reported
        for key in _names(scope / "workers"):
            if (run := of_scope.find(key)) is not None:
                yield run

    def create(self, key: str, pool_id: str, worker_id: str, files: "Mapping[str, bytes]", run: str) -> SlurmRun:
        """Create a run folder with these files. Raises OSError, also if the run folder exists already."""
        record = {"pool": pool_id, "worker": worker_id, "run": run, "time": self._clock.now().timestamp()}
        draft = self._path / "workers" / f".{run}"
        draft.mkdir(mode=0o700)
        for name, content in {**files, "record": json.dumps(record).encode()}.items():
            write_private(draft / name, content)
        draft.rename(self.run_path(key))
        found = self.find(key)
        assert found is not None
        return found

    def remove(self, key: str) -> None:
        """Delete a run folder. It is renamed first, so that no other process sees it half deleted."""
        gone = self._path / "workers" / f".{uuid4().hex}"
        with suppress(FileNotFoundError):
            self.run_path(key).rename(gone)
            delete_if_possible(gone)

    def _sweep(self) -> None:
        """Delete what is older than 7 days: unfinished folders, runs that ended or were never submitted, and unused locks."""
        before = (self._clock.now() - _KEPT).timestamp()
        for path in (self._path / "workers").iterdir():
            with suppress(OSError):
                run = None if path.name.startswith(".") else self.find(path.name)
                is_kept = run is None and not path.name.startswith(".")  # damaged: its job might still run
                was_submitted = run is not None and run.job_id is not None
                if not is_kept and (path / "exit" if was_submitted else path).lstat().st_mtime < before:
                    delete_if_possible(path)
        for path in (self._path / "locks").iterdir():
            with suppress(OSError):
                if path.stat().st_mtime < before and not self.run_path(path.name).exists():
                    file = _locked(path)
                    path.unlink()
                    os.close(file)

    # Locks

    @asynccontextmanager
    async def lock(self, key: str, within: timedelta) -> AsyncIterator[int]:
        """Hold a worker's lock. Yields the lock's file descriptor; a process that inherits it holds the lock too.

        Raises Unanswered if another process still holds it after ``within``.
        """
        async with self._lock(self._path / "locks" / key, within) as file:
            yield file

    @asynccontextmanager
    async def slots_lock(self, within: timedelta) -> AsyncIterator[int]:
        """Hold the lock under which the slots of all stores are counted. Raises Unanswered."""
        async with self._lock(self._root / "slots.lock", within) as file:
            yield file

    @asynccontextmanager
    async def _lock(self, path: Path, within: timedelta) -> AsyncIterator[int]:
        deadline = self._clock.elapsed() + within
        while (file := self._try_lock(path)) is None:
            if self._clock.elapsed() > deadline:
                raise Unanswered(f"another process still holds the lock {path} after {time_span(within)}; try again")
            await self._clock.sleep(_POLL)
        try:
            yield file
        finally:
            os.close(file)

    def _try_lock(self, path: Path) -> int | None:
        try:
            return _locked(path)
        except BlockingIOError:
            return None
        except OSError as exc:
            raise self.failure(exc) from exc


async def in_thread(call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run a blocking call in a thread. If cancelled, still waits for the call, so that no lock is released too early."""
    future = asyncio.get_running_loop().run_in_executor(None, partial(call, *arguments, **named))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise


def _locked(path: Path) -> int:
    """Open and lock a file. Raises BlockingIOError if another process holds the lock, or has deleted the file meanwhile."""
    file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file).st_nlink == 0:
            raise BlockingIOError
    except BaseException:
        os.close(file)
        raise
    return file


def _names(folder: Path) -> Sequence[str]:
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _read_number(path: Path) -> int | None:
    """Return the number in a file; None if there is no such file, or if it contains no number."""
    try:
        return int(read_record(path) or "")
    except (DamagedFile, ValueError):
        return None


def _write_whole(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}")
    write_private(draft, content)
    draft.rename(path)
