"""A cheap signal between processes on one SQLite file: whoever waits has a named pipe beside it, whoever pushes writes a byte.

Where pipes cannot be made (another system, another file system) nobody hears anything, and waiting is by looking.
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

QUIET = 0.002  #: seconds between two rings of one process


class SqliteNotify:
    """The pipes in the folder ``<file>-wake``."""

    def __init__(self, path: Path) -> None:
        self._folder = path.with_name(f"{path.name}-wake")
        self._pipe: Path | None = None
        self._reading = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ears: set[asyncio.Event] = set()
        self._next = 0.0
        self._later: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def listening(self, pool_id: PoolId) -> AsyncIterator[Subscription]:
        live = self._open()
        heard = asyncio.Event()
        self._ears.add(heard)
        try:
            yield Subscription(heard, live)
        finally:
            self._ears.discard(heard)

    async def ring(self, pool_id: PoolId) -> None:
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
        """Make this process's pipe, once. False where there can be none."""
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
        self._loop.add_reader(self._reading, self._hear)
        return True

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._reading, 4096)
        for ear in self._ears:
            ear.set()

    def _write_later(self) -> None:
        self._later = None
        self._write()

    def _write(self) -> None:
        try:
            pipes = os.listdir(self._folder)
        except OSError:
            return
        for pipe in pipes:
            _write_to(self._folder / pipe)


def _write_to(pipe: Path) -> None:
    """A byte for whoever reads there; a pipe nobody reads was left by a process that died. Others hear by looking."""
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
