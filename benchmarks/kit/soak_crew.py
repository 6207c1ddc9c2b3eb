"""Workers that a soak test kills and pauses: processes, or tasks if the store is in memory."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from drumbeat.core.errors import StoreUnavailable
from drumbeat.store import Store
from kit.soak_worker import UNFENCED, Journal, live, watched

_FOLDER = Path(__file__).parents[1]
_END_SECONDS = 60.0


class Crew(Protocol):
    """Workers of one pool, by name."""

    struck: set[str]  #: workers that were paused

    @property
    def alive(self) -> Sequence[str]:
        """The workers that were not killed and have not ended."""
        ...

    async def start(self, name: str) -> None:
        """Start a worker; returns when it is about to join."""
        ...

    async def kill(self, name: str) -> None: ...

    def freeze(self, name: str) -> None: ...

    def thaw(self, name: str) -> None: ...

    async def close(self) -> None:
        """Stop all workers normally."""
        ...


class ProcessCrew:
    """A crew whose workers are processes; ``kill`` sends SIGKILL."""

    def __init__(self, url: str, pool: str, journal: Path, *, fenced: bool = True) -> None:
        self._url = url
        self._pool = pool
        self.struck: set[str] = set()
        self._journal = journal
        self._fenced = fenced
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def alive(self) -> Sequence[str]:
        return [name for name, process in self._processes.items() if process.poll() is None]

    async def start(self, name: str) -> None:
        command = [sys.executable, "-m", "kit.soak_worker", self._url, self._pool, name, str(self._journal)]
        more = [] if self._fenced else [UNFENCED]
        with self._journal.with_suffix(".log").open("ab") as output:
            process = subprocess.Popen([*command, *more], cwd=_FOLDER, stdout=subprocess.PIPE, stderr=output)
        self._processes[name] = process
        if process.stdout is not None:
            await asyncio.to_thread(process.stdout.readline)

    async def kill(self, name: str) -> None:
        self._processes[name].kill()
        await asyncio.to_thread(self._processes[name].wait)

    def freeze(self, name: str) -> None:
        self.struck.add(name)
        self._processes[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGCONT)

    async def close(self) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self._processes.values():
            try:
                await asyncio.to_thread(process.wait, _END_SECONDS)
            finally:
                process.kill()
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()


class Line:
    """A task's connection to its store: cutting it simulates a killed process, closing it a paused one."""

    def __init__(self) -> None:
        self.is_cut = False
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def pass_(self) -> None:
        await asyncio.sleep(0)
        await self.is_open.wait()
        if self.is_cut:
            raise StoreUnavailable("this worker was killed")


class _Part:
    """One part of a store, reached over a line. If the line is cut during a call, the call's answer is lost."""

    def __init__(self, part: object, line: Line) -> None:
        self._part = part
        self._line = line

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._part, name)

        async def call(*given: Any, **named: Any) -> Any:
            await self._line.pass_()
            answer = await method(*given, **named)
            await self._line.pass_()
            return answer

        return call


class LinedStore:
    """A store that is reached over a ``Line``, which a test can cut."""

    _PARTS = frozenset({"queue", "jobs", "pools", "workers", "membership", "events", "leases", "beats", "samples", "logs"})

    def __init__(self, store: Store, line: Line) -> None:
        self._store = store
        self._line = line

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return _Part(found, self._line) if name in self._PARTS else found


class TaskCrew:
    """A crew whose workers are tasks on this event loop; killing a worker cuts its line and cancels the task."""

    def __init__(self, store: Store, pool: str, journal: Path, group: asyncio.TaskGroup, *, fenced: bool = True) -> None:
        self._store = store
        self._pool = pool
        self.struck: set[str] = set()
        self._folder = journal.parent
        self._journal = Journal(journal)
        self._group = group
        self._fenced = fenced
        self._tasks: dict[str, tuple[asyncio.Task[None], Line]] = {}

    @property
    def alive(self) -> Sequence[str]:
        return [name for name, (task, line) in self._tasks.items() if not task.done() and not line.is_cut]

    async def start(self, name: str) -> None:
        line = Line()
        self._tasks[name] = (self._group.create_task(self._live(name, line)), line)

    async def _live(self, name: str, line: Line) -> None:
        store = watched(cast(Store, LinedStore(self._store, line)), self._journal, fenced=self._fenced)

        async def die() -> None:
            await self.kill(name)
            await asyncio.Event().wait()

        with contextlib.suppress(asyncio.CancelledError):
            await live(store, self._pool, name, self._journal, die, self._folder, signals=False)

    async def kill(self, name: str) -> None:
        task, line = self._tasks[name]
        line.is_cut = True
        line.is_open.set()
        task.cancel()

    def freeze(self, name: str) -> None:
        self.struck.add(name)
        self._tasks[name][1].is_open.clear()

    def thaw(self, name: str) -> None:
        self._tasks[name][1].is_open.set()

    async def close(self) -> None:
        for task, line in self._tasks.values():
            line.is_open.set()
            task.cancel()
        await asyncio.gather(*(task for task, _ in self._tasks.values()), return_exceptions=True)
