"""Finds local processes by tags in their environment, and signals them without mistaking one process for another.

Tags are inherited, so a worker's children carry them too; a worker leads a session, most of its children do not.
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

SCOPE = "DRUMBEAT_SPAWNER"  #: keeps the processes of two spawners on one machine apart
POOL = "DRUMBEAT_POOL_ID"
WORKER = "DRUMBEAT_WORKER_ID"

_TAGGED_WITHIN_SECONDS = 1.0

Name = tuple[PoolId, WorkerId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of a worker. Pids are reused, so the start time is part of its identity."""

    pid: int
    birth: str
    name: Name
    started_at: datetime
    leads: bool = True  #: whether it leads its session, as all workers and few of their children do

    @property
    def ref(self) -> str:
        return f"{self.pid}:{self.birth}"

    @property
    def is_alive(self) -> bool:
        """Whether it still runs; a zombie, or a later process with the same pid, does not count."""
        return is_running(self.pid, self.birth)

    def terminate(self) -> None:
        """Send SIGTERM to it alone. Harmless if it is gone."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to it and, if it leads one, its process group. Harmless if it is gone."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL) if self.leads else os.kill(self.pid, signal.SIGKILL)


def is_running(pid: int, birth: str) -> bool:
    """Whether the process with this pid and start time still runs."""
    state = _state_and_birth(pid)
    return state is not None and state[0] != "Z" and state[1] == birth


def is_noted_alive(ref: str) -> bool:
    """Whether the process of a recorded ref (``pid:birth``) still runs."""
    pid, _, birth = ref.partition(":")
    return pid.isdecimal() and is_running(int(pid), birth)


def pid_namespace() -> str:
    """An id of this machine's boot and pid namespace, within which pids are comparable."""
    if sys.platform != "linux":
        return f"{socket.gethostname()}-{psutil.boot_time():.0f}"
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()}-{os.readlink('/proc/self/ns/pid')}"


def find_recorded(name: Name, ref: str) -> Process | None:
    """The process recorded under a name; None when it has ended."""
    pid, _, birth = ref.partition(":")
    try:
        if not is_running(int(pid), birth):
            return None
        started_at = datetime.fromtimestamp(psutil.Process(int(pid)).create_time(), UTC)
        return Process(pid=int(pid), birth=birth, name=name, started_at=started_at, leads=os.getsid(int(pid)) == int(pid))
    except (psutil.Error, OSError, ValueError):
        return None


def born(pid: int) -> str:
    """The start time of the process with this pid. Call it before waiting for the process: afterwards the pid may be reused."""
    state = _state_and_birth(pid)
    return state[1] if state else "0"


def tags(scope: str, name: Name) -> Mapping[str, str]:
    """The environment variables by which a worker is found again."""
    return {SCOPE: scope, POOL: name[0], WORKER: name[1]}


def await_tags(process: Process) -> None:
    """Wait until other processes can see its tags, or it is gone: after Popen it takes a moment until exec has set them."""
    deadline = time.monotonic() + _TAGGED_WITHIN_SECONDS
    while process.is_alive and not _shows_tags(process.pid) and time.monotonic() < deadline:
        time.sleep(0.0005)


def _shows_tags(pid: int) -> bool:
    try:
        return SCOPE in _environment(pid)
    except (psutil.Error, OSError):
        return False


def find(scope: str) -> Sequence[Process]:
    """All running processes with this scope's tags, oldest first, except those of other users, which we may not inspect."""
    found = [_tagged(pid, scope) for pid in psutil.pids()]
    return sorted((one for one in found if one is not None), key=lambda one: (one.started_at, one.pid))


def _tagged(pid: int, scope: str) -> Process | None:
    try:
        return _read(pid, scope) if _environment(pid).get(SCOPE) == scope else None
    except (psutil.Error, OSError, KeyError):
        return None


def _read(pid: int, scope: str) -> Process | None:
    """Read its tags, checking its start time before and after, so that they are not those of a later process with its pid."""
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
    """The environment it was started with; on Linux empty without tags, for speed: each beat reads all processes."""
    if sys.platform != "linux":
        return psutil.Process(pid).environ()
    with open(f"/proc/{pid}/environ", "rb") as file:
        raw = file.read()
    entries = os.fsdecode(raw).split("\0") if SCOPE.encode() in raw else []
    return {name: value for name, _, value in (entry.partition("=") for entry in entries)}


def _state_and_birth(pid: int) -> tuple[str, str] | None:
    """The letter of its state, and its start time since boot, which no change of the wall clock affects."""
    if sys.platform != "linux":
        return _portable_state_and_birth(pid)
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], fields[19]


def _portable_state_and_birth(pid: int) -> tuple[str, str] | None:
    """The same from psutil, where the start time is by the wall clock."""
    try:
        candidate = psutil.Process(pid)
        letter = "Z" if candidate.status() == psutil.STATUS_ZOMBIE else "R"
        return letter, f"{candidate.create_time():.2f}"
    except psutil.NoSuchProcess:
        return None
