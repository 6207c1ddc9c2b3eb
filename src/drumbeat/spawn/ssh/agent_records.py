"""The run directories of workers on an SSH host, of which some can be damaged. Sent there together with ``agent``.

A damaged run directory has a file that cannot be read, or without the fields it should have. Its worker is then found by the
environment of its processes, so that it is still listed, drained and ended.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from drumbeat.spawn.ssh.agent_host import (
    TAG,
    Lock,
    Trouble,
    all_processes,
    environment_of,
    find_family,
    here,
    is_running,
    names_in,
)

if TYPE_CHECKING:
    from drumbeat.spawn.ssh.agent_host import Answer

POOL, WORKER = "DRUMBEAT_POOL_ID", "DRUMBEAT_WORKER_ID"  #: environment variables of each worker, as in drumbeat.spawn.names
_NUMBER = (int, float)
_FIELDS: dict[str, dict[str, Any]] = {
    "record": {"pool": str, "worker": str, "run": str, "time": _NUMBER},
    "process": {"pid": int, "start": str, "supervisor": int, "supervisor_start": str, "boot": str},
    "exit": {"code": int, "time": _NUMBER},
}  #: the files of a run directory, and their fields
#: errors that concern one file only; any other error, such as too many open files, says nothing about the file
_ERRORS_OF_ONE_FILE = {errno.EACCES, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EIO, errno.ENXIO, errno.EPERM}


class Damaged(Exception):
    """A file of a run directory cannot be read, or lacks a field."""


def read(run: str, name: str) -> Answer | None:
    """Return what a file of a run directory contains; None if there is no such file. Raises Damaged, OSError."""
    path = os.path.join(run, name)
    try:
        with open(path, "rb", opener=open_at_once) as file:
            value = json.load(file)
    except FileNotFoundError:
        return None
    except OSError as exc:
        if exc.errno in _ERRORS_OF_ONE_FILE:
            raise Damaged(f"{path} cannot be read: {exc.strerror}") from exc
        raise
    except ValueError as exc:
        raise Damaged(f"{path} is empty, or not JSON: {exc}") from exc
    if not is_whole(name, value):
        raise Damaged(f"{path} lacks one of the fields {', '.join(_FIELDS[name])}")
    return dict(value)


def read_if_whole(run: str, name: str) -> Answer | None:
    """Return what a file of a run directory contains; None if there is no such file, or if it is damaged."""
    try:
        return read(run, name)
    except Damaged:
        return None


def open_at_once(path: str, flags: int) -> int:
    """Open a file. A named pipe is opened without waiting for its other end."""
    return os.open(path, flags | os.O_NONBLOCK)


def is_whole(name: str, value: object) -> bool:
    if not isinstance(value, dict) or not all(isinstance(value.get(field), kind) for field, kind in _FIELDS[name].items()):
        return False
    return name != "process" or (value["pid"] > 1 and value["start"].isdigit())


def state_of(run: str, lock_is_ours: bool = False) -> Answer | None:
    """Return a worker's state, pid and exit code; None if its command was never executed. Raises Damaged.

    ``lock_is_ours``: the caller holds the worker's lock, so no other process is starting the worker.
    """
    record, process = read(run, "record"), read(run, "process")
    if record is None:
        if os.path.isdir(run):
            raise Damaged(f"{os.path.join(run, 'record')} is missing")
        return None
    state = described(run, record)
    if process is None:
        if not lock_is_ours and Lock.is_held(lock_path(run)):
            return dict(state, state="pending")
        process = read(run, "process")  # it might just have been started
        if process is None:
            return None
    state["pid"] = process["pid"]
    if here(process) and is_running(process["pid"], process["start"]):
        return dict(state, state="running")
    ended = read(run, "exit")
    if ended is None and here(process) and is_running(process["supervisor"], process["supervisor_start"]):
        ended = read(run, "exit")
        if ended is None:
            return dict(state, state="running")  # its exit code is about to be recorded
    ended = ended or read(run, "exit")
    return dict(state, state="exited", code=ended and ended["code"], ended=ended and ended["time"])


def described(run: str, record: Answer) -> Answer:
    """Return the beginning of a worker's state, from its record."""
    key = os.path.basename(run)
    return {"key": key, **{name: record[name] for name in ("pool", "worker", "run", "time")}, "pid": None, "code": None}


def rescued(run: str) -> Answer | None:
    """Return the state of a worker with a damaged run directory, from its processes and the files that can be read.

    Returns None if pool and worker are unknown: no process of the worker runs, or none with the worker's environment. A worker
    has ended if only processes that it has left behind still run.
    """
    family, (leader, _) = family_of(run), leader_of(run)
    known = [record_of(pid, family[pid]) for pid in sorted(family, key=lambda pid: (pid != leader, int(family[pid])))]
    record = read_if_whole(run, "record") or next((one for one in known if one is not None), None)
    if record is None:
        return None
    if leader is not None:
        return dict(described(run, record), pid=leader, state="running")
    ended = read_if_whole(run, "exit") or {"code": None, "time": None}
    return dict(described(run, record), state="exited", code=ended["code"], ended=ended["time"])


def leader_of(run: str) -> tuple[int | None, str]:
    """Return pid and start time of a worker's process, which leads a session, as its children seldom do. (None, "") if it has
    ended."""
    family = family_of(run)
    leaders = [pid for pid, fields in all_processes() if pid in family and fields[3] == str(pid)]
    oldest = min(leaders, key=lambda pid: int(family[pid]), default=None)
    return (None, "") if oldest is None else (oldest, family[oldest])


def family_of(run: str, run_id: str = "") -> dict[int, str]:
    """Return pid and start time of the processes of a worker, of one of its runs or of all."""
    process = read_if_whole(run, "process")
    tag = f"{TAG}={run}/{run_id}".encode("utf-8", "surrogateescape")
    return find_family(process if process is not None and here(process) else None, tag)


def record_of(pid: int, start: str) -> Answer | None:
    """Return a worker's record as the environment of one of its processes tells it; None if it does not."""
    environment = environment_of(pid)
    try:
        found = {"pool": environment[POOL], "worker": environment[WORKER], "run": environment[TAG].rpartition("/")[2]}
    except KeyError:
        return None
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return dict(found, time=booted + int(start) / os.sysconf("SC_CLK_TCK"))


def process_of(run: str) -> Answer | None:
    """Return pid and start time of the worker's process on this host; None if it never started, or is unknown."""
    try:
        process = read(run, "process")
    except Damaged:
        leader, start = leader_of(run)
        return None if leader is None else {"pid": leader, "start": start}
    return process if process is not None and here(process) else None


def occupies_slot(run: str) -> bool:
    """Whether a worker is pending or running, also one with a damaged run directory."""
    try:
        state = state_of(run)
    except Damaged:
        return bool(family_of(run))
    return state is not None and state["state"] != "exited"


def lock_path(run: str) -> str:
    """Return the path of the lock of the worker with this run directory."""
    workers, key = os.path.split(run)
    return os.path.join(os.path.dirname(workers), "locks", key)


def delete(path: str) -> None:
    """Delete a directory with all it contains, or a file; what cannot be deleted stays."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            os.unlink(path)


def sweep_drafts(workers: str, kept_seconds: float) -> None:
    """Delete old run directories that an agent was about to create or delete when it was killed."""
    for name in os.listdir(workers):
        path = os.path.join(workers, name)
        with suppress(FileNotFoundError):
            if name.startswith(".") and time.time() - os.lstat(path).st_mtime > kept_seconds:
                delete(path)


def sweep_locks(locks: str, workers: str, kept_seconds: float) -> None:
    """Delete old lock files of workers that no longer exist."""
    for key in names_in(locks):
        path = os.path.join(locks, key)
        with suppress(OSError, Trouble):
            if time.time() - os.stat(path).st_mtime > kept_seconds and not os.path.exists(os.path.join(workers, key)):
                with Lock(path, 0):
                    os.unlink(path)
