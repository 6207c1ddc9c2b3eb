"""What the agent on an SSH host needs: processes, locks and files of the host. It is sent there together with ``agent``."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    Answer = dict[str, Any]


TAG = "DRUMBEAT_SSH_RUN"  #: environment variable RUN DIRECTORY/RUN ID: by it processes are found that left the worker's session
POLL_SECONDS = 0.01  #: how often a lock or the end of a process is looked for


class Trouble(Exception):
    """A request cannot be carried out; ``kind`` is the reason as one word, such as ``full``, which the spawner checks."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


# Processes


@lru_cache
def boot() -> str:
    """Return an id of this boot and pid namespace. A pid is valid only together with the id under which it was recorded."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip() + "-" + os.readlink("/proc/self/ns/pid")


def here(process: Answer) -> bool:
    return bool(process["boot"] == boot())


def stat_of(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third one (the process state) on; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None


def start_of(pid: int) -> str:
    """Return when a process started, in clock ticks since boot."""
    fields = stat_of(pid)
    return fields[19] if fields else ""


def is_running(pid: int, start: str) -> bool:
    """Whether the process with this pid and start time runs; a zombie does not."""
    fields = stat_of(pid)
    return fields is not None and fields[0] not in "ZX" and fields[19] == start


def send(number: int, pid: int, start: str) -> None:
    """Send a signal to the process with this pid and start time. Harmless if it has ended. Raises Trouble."""
    handle = open_handle(pid)
    try:
        if is_running(pid, start):  # checked with the handle open: now it cannot mean a later process
            os.kill(pid, number) if handle is None else signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        pass
    except PermissionError as exc:
        raise Trouble("failed", f"failed to signal process {pid}: it belongs to another user") from exc
    finally:
        if handle is not None:
            os.close(handle)


def open_handle(pid: int) -> int | None:
    """Open a pidfd (a handle of a process); None if the process has ended, or if Python or the kernel does not support it."""
    try:
        return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except OSError:
        return None


def find_family(process: Answer | None, tag: bytes) -> dict[int, str]:
    """Return pid and start time of the worker, its descendants, the members of its session, and the processes with its tag."""
    table = {pid: fields for pid, fields in all_processes() if fields[0] not in "ZX"}
    family = {pid for pid in table if has_tag(pid, tag)}
    if process is not None:
        pid, leader = process["pid"], table.get(process["pid"])
        if leader is None or leader[19] == process["start"]:  # else the pid was reused, and so was the session's number
            since = int(process["start"])
            family |= {each for each, fields in table.items() if int(fields[3]) == pid and int(fields[19]) >= since}
        if leader is not None and leader[19] == process["start"]:
            family.add(pid)
    family |= descendants(family, table)
    family.discard(os.getpid())
    return {pid: table[pid][19] for pid in family}


def descendants(roots: set[int], table: dict[int, list[str]]) -> set[int]:
    found, new = set(roots), set(roots)
    while new:
        new = {pid for pid, fields in table.items() if int(fields[1]) in new} - found
        found |= new
    return found


def all_processes() -> Iterator[tuple[int, list[str]]]:
    for name in os.listdir("/proc"):
        fields = stat_of(int(name)) if name.isdigit() else None
        if fields:
            yield int(name), fields


def has_tag(pid: int, tag: bytes) -> bool:
    """Whether the process has an environment variable that begins with ``tag``."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return (b"\0" + tag) in b"\0" + file.read()
    except OSError:
        return False


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment with which a process was started; empty if it has ended or belongs to another user."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().decode("utf-8", "surrogateescape").split("\0")
    except OSError:
        return {}
    return {name: value for name, _, value in (entry.partition("=") for entry in entries)}


def base_environment() -> dict[bytes, bytes]:
    """Return the environment of the login on this host, without the variables of the SSH session."""
    return {name: value for name, value in os.environb.items() if not name.startswith(b"SSH_") and name != TAG.encode()}


def encoded(environment: dict[str, str]) -> dict[bytes, bytes]:
    """Return the environment encoded as UTF-8, for a new process; the host's locale does not matter."""
    return {
        name.encode("utf-8", "surrogateescape"): value.encode("utf-8", "surrogateescape") for name, value in environment.items()
    }


def version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def home() -> str:
    folder = os.path.expanduser("~")
    return folder if os.path.isdir(folder) else "/"


# Files


class Output:
    """Writes answers as lines to stdout. Does nothing if the connection is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def write(self, result: Answer) -> None:
        line = (json.dumps(result) + "\n").encode()
        with self._lock, suppress(OSError, ValueError):
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()


class Lock:
    """A lock on a file (flock). A process that inherits the file descriptor holds the lock too."""

    def __init__(self, path: str, seconds: float) -> None:
        self._path, self._seconds = path, seconds
        self._fd = -1

    def __enter__(self) -> int:
        deadline = time.monotonic() + self._seconds
        while not self._acquired():
            if time.monotonic() > deadline:
                raise Trouble("busy", f"another process holds the lock {self._path}")
            time.sleep(POLL_SECONDS)
        os.utime(self._fd)
        return self._fd

    def _acquired(self) -> bool:
        """Try once to lock the file. Returns False if another process holds the lock, or if the file was deleted meanwhile.

        A directory in its place, which no process can have locked, is deleted."""
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except IsADirectoryError:
            shutil.rmtree(self._path)
            return False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(self._fd).st_ino == os.stat(self._path).st_ino:
                return True
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(self._fd)
        return False

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)

    @staticmethod
    def is_held(path: str) -> bool:
        try:
            fd = os.open(path, os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(fd)


def make_private(folder: str) -> None:
    """Create a folder for this user only; missing parents too."""
    parent = os.path.dirname(folder)
    if not os.path.isdir(parent):
        make_private(parent)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise


def open_private(path: str) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")


def write_json(path: str, value: Answer, folder: int | None = None) -> None:
    """Write a JSON file for this user only, atomically: readers see the whole file or none."""
    fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=folder)
    with os.fdopen(fd, "wb") as file:
        file.write(json.dumps(value).encode())
    os.rename(path + ".new", path, src_dir_fd=folder, dst_dir_fd=folder)


def names_in(folder: str) -> list[str]:
    """Return the names in a folder, without hidden ones."""
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except FileNotFoundError:
        return []


def find_python(python: str, environment: Answer) -> Answer:
    """Return the version of the worker's Python and of Drumbeat, or why it cannot import Drumbeat."""
    code = "import sys;print(*sys.version_info[:3],sep='.');import drumbeat;print(drumbeat.__version__)"
    command = [os.path.expanduser(python), "-c", code]
    try:
        done = subprocess.run(
            command,
            env={**base_environment(), **encoded(environment)},
            cwd=home(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return {"problem": str(exc), "time": time.time()}
    words, complaints = done.stdout.decode(errors="replace").split(), done.stderr.decode(errors="replace").splitlines()
    found = {"python": words[0] if words else None, "time": time.time()}
    if done.returncode != 0 or len(words) != 2:
        return dict(found, problem=complaints[-1] if complaints else f"exit code {done.returncode}")
    return dict(found, drumbeat=words[1])
