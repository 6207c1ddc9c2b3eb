"""Wakes processes that wait for jobs in one SQLite file: each has a named pipe, and a push writes a byte to every pipe.

Where named pipes are not available (some operating and file systems), waiting processes poll the queue instead.
"""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

from drumbeat.core.pool import PoolId
from drumbeat.store.sql.queue import Subscription

QUIET = 0.002  #: least seconds between two notifications that one process sends


class SqliteNotify:
    """Wakes waiting processes through named pipes in the folder ``<file>-wake``."""

    def __init__(self, path: Path) -> None:
        self._folder = _folder_of(path)
        self._pipe: Path | None = None
        self._reading = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: set[asyncio.Event] = set()
        self._next = 0.0
        self._later: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def listening(self, pool_id: PoolId) -> AsyncIterator[Subscription]:
        live = self._open()
        notified = asyncio.Event()
        self._waiters.add(notified)
        try:
            yield Subscription(notified, live)
        finally:
            self._waiters.discard(notified)

    async def notify(self, pool_id: PoolId) -> None:
        loop = asyncio.get_running_loop()
        if self._later is not None and not self._later.cancelled():
            return
        if loop.time() >= self._next:
            self._next = loop.time() + QUIET
            self._write()
        else:
            self._later = loop.call_at(self._next, self._write_later)

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._write_later()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._reading)
        if self._pipe is not None:
            os.close(self._reading)
            self._pipe.unlink(missing_ok=True)
            with suppress(OSError):
                self._folder.rmdir()
        self._pipe, self._loop = None, None

    def _open(self) -> bool:
        """Create the named pipe of this process if it has none. Returns False where named pipes are not available."""
        if self._pipe is not None:
            return True
        pipe = self._folder / uuid4().hex
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            os.mkfifo(pipe, mode=0o600)
            self._reading = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        except (OSError, AttributeError):
            return False
        self._pipe, self._loop = pipe, asyncio.get_running_loop()
        self._loop.add_reader(self._reading, self._on_notification)
        return True

    def _on_notification(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._reading, 4096)
        for waiter in self._waiters:
            waiter.set()

    def _write_later(self) -> None:
        self._later = None
        self._write()

    def _write(self) -> None:
        _wake_folder(self._folder)


def wake_waiting(path: Path) -> None:
    """Wake every process that waits for jobs in the SQLite file at ``path``."""
    _wake_folder(_folder_of(path))


def _folder_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wake")


def _wake_folder(folder: Path) -> None:
    try:
        pipes = os.listdir(folder)
    except OSError:
        return
    for pipe in pipes:
        _write_to(folder / pipe)


def _write_to(pipe: Path) -> None:
    """Write a byte to a named pipe, or delete it if no process reads it. Ignores other errors: waiting processes also poll."""
    try:
        writing = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as exc:
        if exc.errno == errno.ENXIO:
            with suppress(OSError):
                pipe.unlink()
        return
    with suppress(OSError):
        os.write(writing, b"!")
    os.close(writing)
