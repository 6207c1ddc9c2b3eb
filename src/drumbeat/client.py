"""The public API: connect to a store, push jobs, wait for their results, work on them."""

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from operator import attrgetter
from types import TracebackType
from typing import Any, Self, cast

from drumbeat.composition.base import process_name
from drumbeat.composition.plane import ControlPlane, WorkDone, open_control_plane, push_on
from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import Backoff, Job, JobId, JobStatus, NewJob, RateLimit
from drumbeat.core.pool import PoolId
from drumbeat.pool.job_options import job_from_line, new_job
from drumbeat.pool.service import Pool, PoolStatus
from drumbeat.pool.worker.context import JobContext, JobFailure
from drumbeat.pool.worker.handlers import Handler, describe, load
from drumbeat.pool.worker.options import ExecutorKind, Mode, WorkPlan, parse_handlers
from drumbeat.settings import load_settings
from drumbeat.store.interface import Store

__all__ = [
    "Backoff",
    "Connection",
    "ExecutorKind",
    "Job",
    "JobContext",
    "JobFailure",
    "JobId",
    "JobStatus",
    "Mode",
    "NewJob",
    "Pool",
    "PoolStatus",
    "RateLimit",
    "WorkDone",
    "WorkPlan",
    "connect",
    "connect_blocking",
    "job_from_line",
    "new_job",
    "parse_handlers",
]

Function = Callable[..., Any]

_LONGEST_END = 10.0  #: seconds that are given to what is ended


def connect(url: str | None = None, *, create: bool = True, triggers: bool = False, clock: Clock | None = None) -> "Connection":
    """A store by its URL; without one, that of DRUMBEAT_STORE or drumbeat.toml. With ``create`` missing tables are made.

    With ``triggers`` a push pulls those of triggers.yml that wait for work, as the command line does; a file that cannot be
    used is refused when the store is opened.
    ``async with drumbeat.connect(url) as db: await db.pool("papers").push({"id": 1})``
    """
    return Connection(url, create=create, triggers=triggers, clock=clock or SystemClock())


def connect_blocking(url: str | None = None, *, create: bool = True, triggers: bool = False) -> "BlockingConnection":
    """The same for code without a loop: every method of a Connection and its pools, without ``await``."""
    return BlockingConnection(connect(url, create=create, triggers=triggers))


class Connection:
    """An open store, or one that opens with the first call. Close it, or use it with ``async with``."""

    def __init__(self, url: str | None, *, create: bool, triggers: bool, clock: Clock) -> None:
        self._settings = load_settings(os.environ, store=url)
        self._create = create
        self._triggers = triggers
        self._push_on = push_on(self._settings.store)
        self._clock = clock
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._plane: ControlPlane | None = None

    def pool(self, name: str) -> Pool:
        """A pool of jobs by its name. Nothing is asked of the store yet."""
        store = cast(Store, _Later(self._found, self._store, ""))
        on_push = self._work_added if self._triggers else None
        return Pool(store, self._clock, name, process_name(), on_push, self._push_on)

    async def _work_added(self, pool_id: PoolId) -> None:
        await (await self._open()).work_added(pool_id)

    async def work(self, name: str, handler: "Function | str | Mapping[str, Function | str]", **plan: Any) -> WorkDone:
        """Work on a pool's jobs in this process until its mode says so: ``mode``, ``concurrency``, … as in WorkPlan."""
        wanted = WorkPlan(**{"mode": Mode.DRAIN, **_enums(plan)})
        return await (await self._open()).work(name, wanted, handlers=_handlers(handler), signals=False)

    async def _open(self) -> ControlPlane:
        async with self._opening:
            if self._plane is None:
                self._plane = await self._stack.enter_async_context(self._opened())
        return self._plane

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[ControlPlane]:
        async with open_control_plane(self._settings, create=self._create, clock=self._clock) as plane:
            if self._triggers:
                plane.waker()  # a file that cannot be used is told of before there is work; nor need the first push load it all
            yield plane

    def _found(self) -> Store | None:
        return None if self._plane is None else self._plane.store

    async def _store(self) -> Store:
        return (await self._open()).store

    async def close(self) -> None:
        """Let go of the store. Harmless to repeat."""
        self._plane = None
        await self._stack.aclose()

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Later:
    """Stands in for a store until the first call opens it: a path of names, and at its end a call. Then it steps aside."""

    def __init__(self, found: Callable[[], Store | None], opened: Callable[[], Coroutine[Any, Any, Store]], path: str) -> None:
        """``found`` is the store if it is open, ``opened`` opens it."""
        self._found = found
        self._opened = opened
        self._path = path

    def __getattr__(self, name: str) -> Any:
        if not self._path and hasattr(found := self._found(), name):
            return getattr(found, name)
        return _Later(self._found, self._opened, f"{self._path}.{name}" if self._path else name)

    async def __call__(self, *given: Any, **named: Any) -> Any:
        store = await self._opened()
        try:
            method = attrgetter(self._path)(store)
        except AttributeError:
            raise InvalidInput(f"expected a store that can {self._path}, got {store.traits.name}") from None
        return await method(*given, **named)


def _handlers(given: "Function | str | Mapping[str, Function | str]") -> dict[str, Handler]:
    found = given if isinstance(given, Mapping) else {"": given}
    return {kind: load(each) if isinstance(each, str) else describe(each) for kind, each in found.items()}


def _enums(plan: Mapping[str, Any]) -> dict[str, Any]:
    kinds: Mapping[str, Callable[[Any], Any]] = {"mode": Mode, "executor": ExecutorKind}
    try:
        return {name: kinds[name](value) if name in kinds else value for name, value in plan.items()}
    except ValueError as exc:
        raise InvalidInput(
            f"expected mode to be one of {', '.join(Mode)}, executor one of {', '.join(ExecutorKind)}: {exc}"
        ) from exc


class _Blocking:
    """Every coroutine method of what it stands before, run on the connection's loop and waited for."""

    def __init__(self, inner: object, loop: "_LoopThread") -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found

        def call(*given: Any, **named: Any) -> Any:
            return self._loop.run(found(*given, **named))

        call.__name__, call.__doc__ = name, found.__doc__
        return call

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._inner) if not name.startswith("_")]


class BlockingConnection(_Blocking):
    """A Connection for code without a loop. Its loop runs in a thread of its own, which ends with it."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, _LoopThread())
        self._connection = connection

    def pool(self, name: str) -> Any:
        """A pool of jobs; its methods are PoolDesk's, without ``await``."""
        return _Blocking(self._connection.pool(name), self._loop)

    def close(self) -> None:
        if self._loop.is_running:
            self._loop.run(self._connection.close())
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _LoopThread:
    """A loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="drumbeat", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        if threading.current_thread() is self._thread:
            work.close()
            raise InvalidInput("expected a call from code without a loop; within one use drumbeat.connect, and await")
        if not self.is_running:
            work.close()
            raise InvalidInput("expected an open connection, got one that was closed; connect again")
        over = threading.Event()
        under_way = asyncio.run_coroutine_threadsafe(_noted(work, over), self._loop)
        try:
            return under_way.result()
        except BaseException:
            if under_way.cancel():  # whoever waits was interrupted: nobody is left to hear what comes of it
                over.wait(_LONGEST_END)
            raise

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LONGEST_END)
        self._loop.close()


async def _noted(work: Coroutine[Any, Any, Any], over: threading.Event) -> Any:
    try:
        return await work
    finally:
        over.set()
