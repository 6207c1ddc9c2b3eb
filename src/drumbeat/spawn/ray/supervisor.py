"""Runs one worker on a Ray node. This file is sent there with each job; it needs Linux and Python's standard library only.

Ray starts this process as the entrypoint of a job. It starts the worker, waits for its end, and exits with its exit code.
It kills the worker and all its children at once on SIGTERM, which Ray sends to stop a job, and if its parent (Ray) ends.
To drain the worker, another job on the same node runs ``python3 -m drumbeat_ray_supervisor drain``, which finds this process
by a pid file.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, NoReturn

TASK_FILE = "task.bin"  #: beside this file: command and environment of the worker, encrypted
KEY = "DRUMBEAT_RAY_KEY"  #: environment variable: the key that decrypts the task file
BEGUN = "drumbeat: worker begins, run"  #: how the first line of a worker's output begins

_PID_FILE = "supervisor.pid"
_DRAIN, _END = signal.SIGUSR1, signal.SIGTERM
_CANNOT_EXECUTE = 127
_CHECK_PARENT_MS = 500
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def encrypted(data: bytes, key: str) -> bytes:
    """Encrypt or decrypt data: XOR with bytes that are derived from the key. A key must be used only once."""
    stream = hashlib.shake_256(key.encode()).digest(len(data))
    return (int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")).to_bytes(len(data), "big")


def supervise() -> NoReturn:
    """Run the worker until it ends, SIGTERM arrives, or the parent ends. Then kill all descendants, and end like the worker."""
    parent = os.getppid()
    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (_DRAIN, _END, signal.SIGCHLD):
        signal.signal(number, lambda number, frame: None)
    control(_PR_SET_CHILD_SUBREAPER, 1)
    write_pid()
    task = read_task()
    say(f"{BEGUN} {task['run']}\n")
    worker = start_worker(task)
    watch = select.poll()
    watch.register(wake, select.POLLIN)
    with suppress(OSError, AttributeError):
        watch.register(os.pidfd_open(parent), select.POLLIN)
    status = None
    while status is None:
        watch.poll(_CHECK_PARENT_MS)
        received = signals(wake)
        status = collect(worker)
        if status is None and (_END in received or os.getppid() != parent):
            break
        if status is None and _DRAIN in received:
            os.kill(worker, signal.SIGTERM)
    end_children()
    end_as(-signal.SIGKILL if status is None else status)


def signals(wake: int) -> bytes:
    """The numbers of the signals that arrived since the last call."""
    with suppress(BlockingIOError):
        return os.read(wake, 4096)
    return b""


def collect(worker: int) -> int | None:
    """Collect all children that have ended. Returns the worker's exit code, negative for a signal; None if it still runs."""
    found = None
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == worker:
                found = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return found


def end_children() -> None:
    """Kill all descendants. Orphans become children of this process, so this repeats until no child is left."""
    with suppress(ChildProcessError):
        while True:
            for pid in children():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def children() -> list[int]:
    """The children of this process."""
    me, found = str(os.getpid()), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, IndexError), open(f"/proc/{name}/stat", errors="replace") as file:
                if file.read().rpartition(")")[2].split()[1] == me:
                    found.append(int(name))
    return found


def end_as(status: int) -> NoReturn:
    """End this process as the worker ended: with its exit code, or by the same signal."""
    if status < 0:
        with suppress(OSError, ValueError):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
        os._exit(128 - status)
    os._exit(status)


# Starting


def read_task() -> dict[str, Any]:
    """Read the worker's command and environment, and remove their file."""
    path = beside(TASK_FILE)
    with open(path, "rb") as file:
        task = json.loads(encrypted(file.read(), os.environ.pop(KEY)))
    os.unlink(path)
    return dict(task)


def start_worker(task: dict[str, Any]) -> int:
    """Start the worker's command in a session of its own. Returns its process id."""
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        become(task, supervisor)
    return pid


def become(task: dict[str, Any], supervisor: int) -> NoReturn:
    """Replace this forked process by the worker's command; the kernel will kill it if the supervisor ends."""
    command = [os.path.expanduser(task["command"][0]), *task["command"][1:]]
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in range(1, signal.NSIG):
            with suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        control(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(_CANNOT_EXECUTE)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvpe(command[0], command, environment(task))  # noqa: S606
    except BaseException as exc:
        say(f"{command[0]}: {getattr(exc, 'strerror', None) or exc}\n")
    finally:
        os._exit(_CANNOT_EXECUTE)


def environment(task: dict[str, Any]) -> dict[str, str]:
    """Return Ray's environment with the worker's own variables, and without this file's folder in PYTHONPATH."""
    found = dict(os.environ)
    here = os.path.dirname(beside(TASK_FILE))
    paths = [path for path in found.pop("PYTHONPATH", "").split(os.pathsep) if path and os.path.abspath(path) != here]
    return {**found, **({"PYTHONPATH": os.pathsep.join(paths)} if paths else {}), **task["environment"]}


def control(option: int, value: int) -> None:
    """Call prctl, for which Python has no function, to set an attribute of this process. Errors are ignored."""
    with suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def beside(name: str) -> str:
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)


def say(text: str) -> None:
    """Write to the job's output."""
    with suppress(OSError):
        os.write(1, text.encode())


# Draining


def drain() -> None:
    """Ask the supervisor that runs from this folder to drain its worker. Does nothing if the supervisor has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        with open(beside(_PID_FILE), encoding="utf-8") as file:
            pid, born = file.read().split()
        if start_time(int(pid)) == born:
            os.kill(int(pid), _DRAIN)


def write_pid() -> None:
    """Write this process's pid and start time to the pid file; the start time matters because pids are reused."""
    path, me = beside(_PID_FILE), os.getpid()
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(f"{me} {start_time(me)}")
    os.replace(f"{path}.new", path)


def start_time(pid: int) -> str:
    """The start time of a process, since boot; raises FileNotFoundError if it has ended."""
    with open(f"/proc/{pid}/stat", errors="replace") as file:
        return file.read().rpartition(")")[2].split()[19]


if __name__ == "__main__":
    drain() if sys.argv[1:] == ["drain"] else supervise()
