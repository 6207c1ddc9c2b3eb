"""The leash: a pipe through which a local worker notices that the process that started it has ended, even by kill -9.

The parent has the writing end and never writes; each worker inherits the reading end and waits on it. When the parent ends in
any way, the kernel closes the pipe, and the worker ends itself. PR_SET_PDEATHSIG would not do: it fires when the *thread* that
started the worker ends, and can be missed between fork and exec. A program that never calls ``hold_leash`` keeps running.
"""

import os
import signal
import stat
import time
from datetime import timedelta
from threading import Thread

from drumbeat.core.errors import InvalidSettings

LEASH_FD = "DRUMBEAT_LEASH_FD"
GRACE = timedelta(seconds=10)  #: time between SIGTERM and SIGKILL


class Leash:
    """The parent's end of the leash (a pipe). Workers inherit the other end, and run as long as the parent's end is open."""

    def __init__(self) -> None:
        self.inherited, self._held = os.pipe()

    def close(self) -> None:
        os.close(self._held)
        os.close(self.inherited)


def hold_leash(grace: timedelta = GRACE) -> bool:
    """From now on, end this process when its parent ends: it sends itself SIGTERM, and SIGKILL after ``grace``.

    Returns False if DRUMBEAT_LEASH_FD is not set, so that there is no leash. Raises InvalidSettings if it names no pipe.
    """
    value = os.environ.pop(LEASH_FD, None)
    if value is None:
        return False
    end = _inherited_pipe(value)
    os.set_inheritable(end, False)
    Thread(target=_end_with_parent, args=(end, grace), name="leash", daemon=True).start()
    return True


def _inherited_pipe(value: str) -> int:
    try:
        end = int(value)
        is_pipe = stat.S_ISFIFO(os.fstat(end).st_mode)
    except (ValueError, OSError) as exc:
        raise _wrong(value) from exc
    if not is_pipe:
        raise _wrong(value)
    return end


def _wrong(value: str) -> InvalidSettings:
    return InvalidSettings(
        f"expected {LEASH_FD} to be the number of a pipe inherited from the spawner, got {value!r}; "
        f"unset it to run this worker by hand"
    )


def _end_with_parent(end: int, grace: timedelta) -> None:
    while os.read(end, 1):
        continue
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace.total_seconds())
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
