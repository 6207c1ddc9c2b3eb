"""Finds and signals the local processes of workers by tags (environment variables with pool and worker).

Children inherit the tags; a worker differs from them in that it leads a session. Pids are compared with start times, so that
a later process with the same pid is never signalled.
"""

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import psutil

from drumbeat.core.pool import PoolId
from drumbeat.core.worker import WorkerId
from drumbeat.spawn.names import POOL, WORKER, Name

SCOPE = "DRUMBEAT_SPAWNER"  #: environment variable: a hash of the state folder to which the process belongs

_TAGGED_WITHIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A worker's process or a child of it. Pids are reused, so ``birth`` (its start time) is part of its identity."""

    pid: int
    birth: str
    name: Name
    started_at: datetime
    leads: bool = True  #: whether it leads a session: workers do, their children seldom do

    @property
    def ref(self) -> str:
        return f"{self.pid}:{self.birth}"

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs; a zombie, or a later process with the same pid, does not count."""
        return is_running(self.pid, self.birth)

    def terminate(self) -> None:
        """Send SIGTERM to this process only. Harmless if it has ended."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to this process, or to its whole group if it leads one. Harmless if it has ended."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL) if self.leads else os.kill(self.pid, signal.SIGKILL)


def is_running(pid: int, birth: str) -> bool:
    """Whether the process with this pid and start time still runs."""
    state = _state_and_birth(pid)
    return state is not None and state[0] != "Z" and state[1] == birth


def is_recorded_running(ref: str) -> bool:
    """Whether a recorded process, given as ``pid:start time``, still runs."""
    pid, _, birth = ref.partition(":")
    return pid.isdecimal() and is_running(int(pid), birth)


def pid_namespace() -> str:
    """Return an id of this boot and pid namespace. A pid is valid only together with the id under which it was recorded."""
    if sys.platform != "linux":
        return f"{socket.gethostname()}-{psutil.boot_time():.0f}"
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()}-{os.readlink('/proc/self/ns/pid')}"


def find_recorded(name: Name, ref: str) -> Process | None:
    """Return the process of a worker from its record (``pid:start time``); None if it has ended."""
    pid, _, birth = ref.partition(":")
    try:
        if not is_running(int(pid), birth):
            return None
        started_at = datetime.fromtimestamp(psutil.Process(int(pid)).create_time(), UTC)
        return Process(pid=int(pid), birth=birth, name=name, started_at=started_at, leads=os.getsid(int(pid)) == int(pid))
    except (psutil.Error, OSError, ValueError):
        return None


def born(pid: int) -> str:
    """Return the start time of a process. Call it before waiting for its end: afterwards the pid can be reused."""
    state = _state_and_birth(pid)
    return state[1] if state else "0"


def tags(scope: str, name: Name) -> Mapping[str, str]:
    """Return the environment variables by which a worker's processes are found."""
    return {SCOPE: scope, POOL: name[0], WORKER: name[1]}


def await_tags(process: Process) -> None:
    """Wait until other processes can see the tags of a new process: it takes a moment until exec has set its environment."""
    deadline = time.monotonic() + _TAGGED_WITHIN_SECONDS
    while process.is_alive and not _shows_tags(process.pid) and time.monotonic() < deadline:
        time.sleep(0.0005)


def _shows_tags(pid: int) -> bool:
    try:
        return SCOPE in _environment(pid)
    except (psutil.Error, OSError):
        return False


def find(scope: str) -> Sequence[Process]:
    """Return this user's running processes whose tags have this scope (hash of a state folder), oldest first."""
    found = [_tagged(pid, scope) for pid in psutil.pids()]
    return sorted((one for one in found if one is not None), key=lambda one: (one.started_at, one.pid))


def _tagged(pid: int, scope: str) -> Process | None:
    try:
        return _read(pid, scope) if _environment(pid).get(SCOPE) == scope else None
    except (psutil.Error, OSError, KeyError):
        return None


def _read(pid: int, scope: str) -> Process | None:
    """Return a process with pool and worker from its environment; None if it ended or has another scope (state folder)."""
    birth, environment = born(pid), _environment(pid)
    process = Process(
        pid=pid,
        birth=birth,
        name=(PoolId(environment[POOL]), WorkerId(environment[WORKER])),
        started_at=datetime.fromtimestamp(psutil.Process(pid).create_time(), UTC),
        leads=os.getsid(pid) == pid,
    )
    return process if environment.get(SCOPE) == scope and process.is_alive else None


def _environment(pid: int) -> Mapping[str, str]:
    """Return a process's environment variables; on Linux, to save time, empty for a process without Drumbeat's variables."""
    if sys.platform != "linux":
        return psutil.Process(pid).environ()
    with open(f"/proc/{pid}/environ", "rb") as file:
        raw = file.read()
    entries = os.fsdecode(raw).split("\0") if SCOPE.encode() in raw else []
    return {name: value for name, _, value in (entry.partition("=") for entry in entries)}


def _state_and_birth(pid: int) -> tuple[str, str] | None:
    """Return a process's state as a letter (Z: zombie), and its start time since boot; None if there is no such process."""
    if sys.platform != "linux":
        return _portable_state_and_birth(pid)
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], fields[19]


def _portable_state_and_birth(pid: int) -> tuple[str, str] | None:
    """Return a process's state and start time on systems without /proc; the start time is by the wall clock."""
    try:
        candidate = psutil.Process(pid)
        letter = "Z" if candidate.status() == psutil.STATUS_ZOMBIE else "R"
        return letter, f"{candidate.create_time():.2f}"
    except psutil.NoSuchProcess:
        return None
