"""Processes of this machine found by tags in their environment, and signalled without mistaking one for another.

Tags are inherited, so a worker's own children carry them too; a worker leads a session, most of its children do not.
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

SCOPE = "DRUMBEAT_SPAWNER"  #: whose processes these are, so that two spawners on one machine do not see each other's
POOL = "DRUMBEAT_POOL_ID"
WORKER = "DRUMBEAT_WORKER_ID"

_TAGGED_WITHIN_SECONDS = 1.0

Name = tuple[PoolId, WorkerId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of a worker. A pid is used again once it is free, so its birth belongs to its identity."""

    pid: int
    birth: str
    name: Name
    started_at: datetime
    leads: bool = True  #: its session, as every worker does and few of their children do

    @property
    def ref(self) -> str:
        return f"{self.pid}:{self.birth}"

    @property
    def is_alive(self) -> bool:
        """Whether it still runs; a zombie does not, nor does a later process with its pid."""
        return is_running(self.pid, self.birth)

    def terminate(self) -> None:
        """SIGTERM to it alone. Harmless if it is gone."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to it and, if it leads them, its process group. Harmless if it is gone."""
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL) if self.leads else os.kill(self.pid, signal.SIGKILL)


def is_running(pid: int, birth: str) -> bool:
    """Whether the process that was born then still runs under this pid."""
    state = _state_and_birth(pid)
    return state is not None and state[0] != "Z" and state[1] == birth


def is_noted_alive(ref: str) -> bool:
    """The same for a process as it was noted."""
    pid, _, birth = ref.partition(":")
    return pid.isdecimal() and is_running(int(pid), birth)


def here() -> str:
    """Where pids mean what they mean now: this machine since its last start, and of it this container's processes."""
    if sys.platform != "linux":
        return f"{socket.gethostname()}-{psutil.boot_time():.0f}"
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()}-{os.readlink('/proc/self/ns/pid')}"


def noted(name: Name, ref: str) -> Process | None:
    """The process that was noted under a name; None when it is over."""
    pid, _, birth = ref.partition(":")
    try:
        if not is_running(int(pid), birth):
            return None
        started_at = datetime.fromtimestamp(psutil.Process(int(pid)).create_time(), UTC)
        return Process(pid=int(pid), birth=birth, name=name, started_at=started_at, leads=os.getsid(int(pid)) == int(pid))
    except (psutil.Error, OSError, ValueError):
        return None


def born(pid: int) -> str:
    """When the process that has this pid now was started. It must not have been awaited yet, or its pid may have passed on."""
    state = _state_and_birth(pid)
    return state[1] if state else "0"


def tags(scope: str, name: Name) -> Mapping[str, str]:
    """What to put into a worker's environment so that it is found again."""
    return {SCOPE: scope, POOL: name[0], WORKER: name[1]}


def await_tags(process: Process) -> None:
    """Return once others can see its tags, or it is gone: exec shows the new environment a moment after Popen has returned."""
    deadline = time.monotonic() + _TAGGED_WITHIN_SECONDS
    while process.is_alive and not _shows_tags(process.pid) and time.monotonic() < deadline:
        time.sleep(0.0005)


def _shows_tags(pid: int) -> bool:
    try:
        return SCOPE in _environment(pid)
    except (psutil.Error, OSError):
        return False


def find(scope: str) -> Sequence[Process]:
    """Every living process with this scope's tags, oldest first; those of other users, whom we may not look into, left out."""
    found = [_tagged(pid, scope) for pid in psutil.pids()]
    return sorted((one for one in found if one is not None), key=lambda one: (one.started_at, one.pid))


def _tagged(pid: int, scope: str) -> Process | None:
    try:
        return _read(pid, scope) if _environment(pid).get(SCOPE) == scope else None
    except (psutil.Error, OSError, KeyError):
        return None


def _read(pid: int, scope: str) -> Process | None:
    """Read its tags between two looks at its birth, so that they are surely its own and not those of a pid's next owner."""
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
    """What it was started with, if it has tags. Cheap where it can be: each beat asks every process of the machine."""
    if sys.platform != "linux":
        return psutil.Process(pid).environ()
    with open(f"/proc/{pid}/environ", "rb") as file:
        raw = file.read()
    entries = os.fsdecode(raw).split("\0") if SCOPE.encode() in raw else []
    return {name: value for name, _, value in (entry.partition("=") for entry in entries)}


def _state_and_birth(pid: int) -> tuple[str, str] | None:
    """Its state's letter, and when it started, counted from boot: no correction of the wall clock changes it."""
    if sys.platform != "linux":
        return _portable_state_and_birth(pid)
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return fields[0], fields[19]


def _portable_state_and_birth(pid: int) -> tuple[str, str] | None:
    """The same from psutil, whose birth is a time of day."""
    try:
        candidate = psutil.Process(pid)
        letter = "Z" if candidate.status() == psutil.STATUS_ZOMBIE else "R"
        return letter, f"{candidate.create_time():.2f}"
    except psutil.NoSuchProcess:
        return None
