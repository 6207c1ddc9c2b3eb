"""The supervisor of a worker on an SSH host: starts it, waits for its end, records its exit code. Sent there with ``agent``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from drumbeat.spawn.ssh.agent_host import base_environment, boot, encoded, home, start_of, write_json

if TYPE_CHECKING:
    from drumbeat.spawn.ssh.agent_host import Answer


def supervise(task: Answer) -> None:
    """Start the worker, report to the agent, wait for the worker's end, and record its exit code."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.set_inheritable(task["lock"], False)
    folder = os.open(task["folder"], os.O_RDONLY | os.O_DIRECTORY)
    gate, opener = os.pipe()
    errors, complaint = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(opener)
        become(task, folder, gate, complaint)
    os.close(gate)
    os.close(complaint)
    me = os.getpid()
    process = {"pid": pid, "start": start_of(pid), "supervisor": me, "supervisor_start": start_of(me), "boot": boot()}
    write_json("process", process, folder)
    os.write(opener, b"!")
    with os.fdopen(errors, "rb") as file:
        error = file.read().decode(errors="replace")
    sys.stdout.buffer.write(json.dumps({"error": error} if error else {"pid": pid}).encode())
    sys.stdout.buffer.flush()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    os.close(task["lock"])
    _, status = os.waitpid(pid, 0)
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    with suppress(OSError):  # the run directory is gone if the worker was terminated
        write_json("exit", {"code": code, "time": time.time()}, folder)


def become(task: Answer, folder: int, gate: int, complaint: int) -> None:
    """Wait until ``gate`` reports that this process is recorded, then execute the worker's command. Never returns.

    ``gate`` and ``complaint`` are pipes; an error is written to ``complaint``.
    """
    try:
        os.setsid()
        if os.read(gate, 1) != b"!":
            os._exit(126)  # the supervisor was killed: this process is not recorded, so it must not run
        log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600, dir_fd=folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        for number in range(1, signal.NSIG):
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                with suppress(OSError, ValueError):
                    signal.signal(number, signal.SIG_DFL)
        os.chdir(home())
        command = [os.path.expanduser(task["command"][0]), *task["command"][1:]]
        words = [word.encode("utf-8", "surrogateescape") for word in command]
        os.execvpe(words[0], words, {**base_environment(), **encoded(task["environment"])})  # noqa: S606
    except BaseException as exc:
        os.write(complaint, f"{task['command'][0]}: {getattr(exc, 'strerror', None) or exc}".encode(errors="replace"))
    finally:
        os._exit(127)


def converse(supervisor: subprocess.Popen[bytes], task: bytes) -> Answer:
    """Send a supervisor its task, and return its report; an empty dict if it ended without a report."""
    assert supervisor.stdin is not None
    assert supervisor.stdout is not None
    with supervisor.stdout, suppress(BrokenPipeError):
        with supervisor.stdin as task_file:
            task_file.write(task)
        report = supervisor.stdout.read()
        return dict(json.loads(report)) if report else {}
    return {}
