"""Ends the processes that a simulated container has left, found by an environment variable that they inherit."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path


def end_marked(variable: str, value: str) -> None:
    """End what is left of a container, as the end of its first process does in a container, and wait until it is gone."""
    mark = f"{variable}={value}".encode()
    while _kill_marked(mark):
        time.sleep(0.005)


def _kill_marked(mark: bytes) -> int:
    """Kill the processes with this mark. Returns how many there were; one that only waits to be reaped has no mark any more."""
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes():
                    count += 1
                    os.kill(int(entry.name), signal.SIGKILL)
    return count
