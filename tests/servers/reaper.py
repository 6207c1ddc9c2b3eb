"""Ends the servers a test process started once that process is gone, however it went.

A second process reads from a pipe that only the test process holds open. The kernel closes the pipe whatever became of the test
process, kill -9 included, and then the reaper ends what it was told to watch and removes the folders. PR_SET_PDEATHSIG would
need no second process, but it fires when the *thread* that started the server ends, the kernel clears it when credentials
change (as they do on entering a user namespace), and only Linux has it.
"""

import atexit
import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from threading import Lock
from typing import IO

import psutil

_PATIENCE_SECONDS = 3.0


class Reaper:
    """The test process's end of the pipe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, text=True, start_new_session=True)
        atexit.register(self._close)  # noqa: TID251 - at the end of the tests

    def watch(self, pid: int) -> None:
        """End this process and its children if we die."""
        self._say(f"watch {pid}")

    def forget(self, pid: int) -> None:
        """It has ended already."""
        self._say(f"forget {pid}")

    def sweep(self, folder: str) -> None:
        """Remove this folder when we end."""
        self._say(f"sweep {folder}")

    def _say(self, line: str) -> None:
        with self._lock:
            pipe = self._pipe()
            pipe.write(line + "\n")
            pipe.flush()

    def _pipe(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self._pipe().close()
        self._process.wait()


@cache
def reaper() -> Reaper:
    """One for all servers of this process."""
    return Reaper()


def end(watched: psutil.Process) -> None:
    """End a server and its children: the quick way that cleans up (SIGQUIT), then the certain one."""
    with contextlib.suppress(psutil.NoSuchProcess):
        tree = [watched, *watched.children(recursive=True)]
        _send(tree, signal.SIGCONT)
        _send([watched], signal.SIGQUIT)
        if not wait_gone(tree, _PATIENCE_SECONDS):
            _send(tree, signal.SIGKILL)
            wait_gone(tree, _PATIENCE_SECONDS)


def wait_gone(processes: Sequence[psutil.Process], seconds: float) -> bool:
    """Wait until all have ended, whether or not their parents have collected them; answers whether they have."""
    deadline = time.monotonic() + seconds
    while any(_is_alive(process) for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _send(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def main(orders: IO[str]) -> None:
    """Remember what to end until the pipe closes, then end it."""
    watched: dict[str, psutil.Process] = {}
    folders: list[str] = []
    for line in orders:
        verb, _, subject = line.strip().partition(" ")
        if verb == "watch":
            with contextlib.suppress(psutil.NoSuchProcess):
                watched[subject] = psutil.Process(int(subject))
        elif verb == "forget":
            watched.pop(subject, None)
        else:
            folders.append(subject)
    for process in watched.values():
        end(process)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.stdin)
