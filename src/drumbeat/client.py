"""The public API: connect to a store, push jobs, wait for results, and run workers."""

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from drumbeat.composition.base import process_name
from drumbeat.composition.plane import ControlPlane, WorkerSummary as WorkerSummary, open_control_plane
from drumbeat.composition.plugins import open_plugins
from drumbeat.core.clock import Clock, SystemClock
from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import (
    Backoff as Backoff,
    IfFailed as IfFailed,
    Job as Job,
    JobId as JobId,
    JobStatus as JobStatus,
    NewJob as NewJob,
    RateLimit as RateLimit,
)
from drumbeat.core.pool import PoolId
from drumbeat.loop_thread import ConnectionLoop, LoopThread, refuse_in_loop
from drumbeat.pool.bulk import BulkResult as BulkResult
from drumbeat.pool.error_groups import ErrorGroup as ErrorGroup, ErrorGroups as ErrorGroups
from drumbeat.pool.flows import WorkflowProgress as WorkflowProgress
from drumbeat.pool.handler_record import (
    record_handlers as record_handlers,
    remove_task_handlers as remove_task_handlers,
)
from drumbeat.pool.job_filter import JobFilter as JobFilter
from drumbeat.pool.job_options import job_from_line as job_from_line, new_job as new_job
from drumbeat.pool.middleware import (
    AttemptCall as AttemptCall,
    Middleware as Middleware,
    MiddlewareChain,
    PushCall as PushCall,
)
from drumbeat.pool.option_types import WorkOptions
from drumbeat.pool.plugins import PoolPlugins
from drumbeat.pool.result_ttl import RESULT_TTL as RESULT_TTL
from drumbeat.pool.schedules.model import (
    JobSchedule as JobSchedule,
    MissedTicks as MissedTicks,
    is_schedule_key as is_schedule_key,
)
from drumbeat.pool.schedules.service import Schedules as Schedules, ScheduleStatus as ScheduleStatus
from drumbeat.pool.service import Pool as Pool, PoolStatus as PoolStatus
from drumbeat.pool.worker.context import JobContext as JobContext, JobFailure as JobFailure
from drumbeat.pool.worker.handlers import handlers_of
from drumbeat.pool.worker.log_context import JobLogFilter as JobLogFilter
from drumbeat.pool.worker.options import (
    ExecutorKind as ExecutorKind,
    Mode as Mode,
    WorkPlan as WorkPlan,
    parse_handlers as parse_handlers,
    plan_from_options,
)
from drumbeat.pool.workflow_graph import GraphBox as GraphBox, WorkflowGraph as WorkflowGraph
from drumbeat.settings import load_settings
from drumbeat.store.interface import Store

if TYPE_CHECKING:
    from drumbeat.blocking_pool import BlockingPool

Function = Callable[..., Any]


def connect(
    url: str | None = None,
    *,
    create: bool = True,
    triggers: bool = False,
    clock: Clock | None = None,
    middleware: Sequence[object] = (),
) -> "Connection":
    """Connect to the store at ``url``, or by default to the store named by DRUMBEAT_STORE or drumbeat.toml.

    ``create`` creates missing tables. With ``triggers``, a push also fires the triggers in triggers.yml that react to pushes,
    as the command line does; an invalid file raises InvalidSettings when the store is opened. If it becomes invalid later,
    pushes succeed without triggers, and a warning is logged. ``middleware``: objects with hooks around pushes and attempts
    (see ``Middleware``), called after the middleware of the settings.
    ``async with drumbeat.connect(url) as db: await db.pool("papers").push({"id": 1})``
    """
    return Connection(url, create=create, triggers=triggers, clock=clock or SystemClock(), middleware=middleware)


def connect_blocking(
    url: str | None = None, *, create: bool = True, triggers: bool = False, middleware: Sequence[object] = ()
) -> "BlockingConnection":
    """Connect like ``connect``, for code without an event loop: the methods of the connection and its pools need no await."""
    return BlockingConnection(connect(url, create=create, triggers=triggers, middleware=middleware))


class Connection:
    """A connection to a store. ``async with`` opens and closes it; or the first call opens it, and you call ``close``."""

    def __init__(
        self, url: str | None, *, create: bool, triggers: bool, clock: Clock, middleware: Sequence[object] = ()
    ) -> None:
        self._settings = load_settings(os.environ, store=url)
        self._create = create
        self._triggers = triggers
        self._clock = clock
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._plane: ControlPlane | None = None
        self.loop: LoopThread | None = None  #: the thread on which all calls of the store run; None: on the caller's event loop
        self._middleware = MiddlewareChain(middleware).members

    def pool(self, name: str) -> Pool:
        """Return the pool of jobs with this name. This does not call the store."""
        store = cast(Store, _LazyStore(self._store_if_open, self._store, ""))
        on_push = self._work_added if self._triggers else None
        url = self._settings.store
        return Pool(store, self._clock, name, process_name(), on_push, url, self._check_engine, self._plugins)

    @cached_property
    def _plugins(self) -> PoolPlugins:
        store = cast(Store, _LazyStore(self._store_if_open, self._store, ""))
        return open_plugins(self._settings, store, self._clock, self._middleware, self._on_loop)

    async def _on_loop(self, work: Coroutine[Any, Any, str]) -> str:
        """Run a call of the store on the store's event loop, because ``push_on`` can be awaited on another event loop."""
        return await (work if self.loop is None or self.loop.is_current else self.loop.run_async(work))

    async def _check_engine(self, engines: str) -> None:
        await (await self._open()).check_engine(engines)

    async def _work_added(self, pool_id: PoolId) -> None:
        await (await self._open()).work_added(pool_id)

    async def work(
        self, name: str, handler: "Function | str | Mapping[str, Function | str]", **plan: Unpack[WorkOptions]
    ) -> WorkerSummary:
        """Run a worker for a pool's jobs in this process; by default it returns when no job is left to claim.

        ``plan`` takes fields of WorkPlan: ``mode``, ``concurrency``, … Raises NotFound; InvalidInput, also for other names.
        """
        checked = plan_from_options(plan)
        return await (await self._open()).work(name, checked, handlers=handlers_of(handler), signals=False)

    async def record_handlers(self, name: str, handlers: Mapping[str, str]) -> None:
        """Record in a pool which ``module:function`` runs which type of job. The pool is created if it does not exist."""
        plane = await self._open()
        await record_handlers(plane.store, plane.pool(name), handlers)

    async def _open(self) -> ControlPlane:
        async with self._opening:
            if self._plane is None:
                self._plane = await self._stack.enter_async_context(self._opened())
        return self._plane

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[ControlPlane]:
        async with open_control_plane(self._settings, create=self._create, clock=self._clock) as plane:
            plane.plugins = self._plugins
            if self._triggers:
                plane.waker()  # raises for a file that cannot be used, and loads it before the first push
            yield plane

    def _store_if_open(self) -> Store | None:
        return None if self._plane is None else self._plane.store

    async def _store(self) -> Store:
        return (await self._open()).store

    async def close(self) -> None:
        """Close the store. Safe to call more than once."""
        self._plane = None
        await self._stack.aclose()

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _LazyStore:
    """A stand-in for a store that is not open yet. ``lazy.jobs.get(id)`` opens the store, then calls ``store.jobs.get(id)``."""

    def __init__(
        self, if_open: Callable[[], Store | None], opened: Callable[[], Coroutine[Any, Any, Store]], path: str
    ) -> None:
        """``if_open`` returns the open store or None; ``opened`` opens it; ``path``: what to call, such as ``jobs.get``."""
        self._if_open = if_open
        self._opened = opened
        self._path = path

    def __getattr__(self, name: str) -> Any:
        if not self._path and hasattr(store := self._if_open(), name):
            return getattr(store, name)
        return _LazyStore(self._if_open, self._opened, f"{self._path}.{name}" if self._path else name)

    async def __call__(self, *given: Any, **named: Any) -> Any:
        store = await self._opened()
        try:
            method = attrgetter(self._path)(store)
        except AttributeError:
            raise InvalidInput(f"expected a store that supports {self._path}, got {store.traits.name}") from None
        return await method(*given, **named)


class _Blocking:
    """Wraps an object: its coroutine methods run on the connection's event loop, and the caller waits for the result."""

    def __init__(self, inner: object, loop: ConnectionLoop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return _Blocking(found, self._loop) if isinstance(found, Schedules) else found

        def call(*given: Any, **named: Any) -> Any:
            if name == "result":
                refuse_in_loop("result()", "drumbeat.connect and await pool.result(…)")
            return self._loop.run(found(*given, **named))

        call.__name__, call.__doc__ = name, found.__doc__
        return call

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._inner) if not name.startswith("_")]


class BlockingConnection:
    """A Connection for code without an event loop: it runs its own event loop in a thread, until ``close``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        connection.loop = LoopThread()
        self._loop = ConnectionLoop(connection.loop, connection.close)

    def pool(self, name: str) -> "BlockingPool":
        """Return the pool of jobs with this name. It has the methods of ``Pool``, called without ``await``."""
        return cast("BlockingPool", _Blocking(self._connection.pool(name), self._loop))

    def work(
        self, name: str, handler: "Function | str | Mapping[str, Function | str]", **plan: Unpack[WorkOptions]
    ) -> WorkerSummary:
        """Run a worker in this process, like ``Connection.work``, and wait until it ends."""
        refuse_in_loop("work()", "drumbeat.connect and await db.work(…)")
        return self._loop.run(self._connection.work(name, handler, **plan))

    def record_handlers(self, name: str, handlers: Mapping[str, str]) -> None:
        """Record in a pool which ``module:function`` runs which type of job. The pool is created if it does not exist."""
        self._loop.run(self._connection.record_handlers(name, handlers))

    def close(self) -> None:
        """Close the store and end the thread of the event loop. Safe to call more than once."""
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
