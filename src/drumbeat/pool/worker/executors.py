"""Executors run handlers: on the worker's event loop, in threads, or in child processes."""

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol

from drumbeat.core.errors import InvalidInput
from drumbeat.pool.worker.context import JobContext
from drumbeat.pool.worker.handlers import Handler
from drumbeat.pool.worker.options import ExecutorKind
from drumbeat.pool.worker.process_pool import ProcessPool
from drumbeat.pool.worker.threads import Threads


class Executor(Protocol):
    """Runs handlers. Cancelling ``run`` stops the handler if possible; a function in a thread cannot be stopped and lingers."""

    on_free: Callable[[], None]  #: called when a lingering handler has ended

    @property
    def lingering(self) -> int:
        """How many handlers were cancelled but still run; each takes up a job slot."""
        ...

    async def prepare(self, handler: Handler) -> None:
        """Import the handler where it will run, before its time limit begins. Raises ChildProcessFailure if that fails."""
        ...

    async def run(self, handler: Handler, context: JobContext) -> Any:
        """Run a handler and return its result. Raises the handler's exception, but RuntimeError for SystemExit or the like."""
        ...

    async def run_in_thread(self, function: Callable[[], Any]) -> Any:
        """Run a plain function of an async handler in a thread. If this is cancelled, the function still runs to its end."""
        ...

    async def close(self) -> None: ...


class LoopExecutor:
    """Runs coroutines on the worker's event loop, and plain functions in threads."""

    def __init__(self) -> None:
        self.on_free: Callable[[], None] = _nothing
        self._threads = Threads(lambda: self.on_free())

    async def prepare(self, handler: Handler) -> None:
        """Do nothing: the handler was imported before its job was claimed."""

    @property
    def lingering(self) -> int:
        return self._threads.lingering

    async def run(self, handler: Handler, context: JobContext) -> Any:
        if not handler.is_async:
            return await self._threads.run(partial(copy_context().run, call, handler, context))
        context.main = asyncio.current_task()
        try:
            return await handler.invoke(context)
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as exc:
            raise RuntimeError(f"the handler raised {type(exc).__name__}: {exc}") from exc

    async def run_in_thread(self, function: Callable[[], Any]) -> Any:
        return await self._threads.run(function)

    async def close(self) -> None:
        self._threads.close()


class ThreadExecutor(LoopExecutor):
    """Runs every handler in a thread; a coroutine runs there on a new event loop. Programs (``command:``) need no thread."""

    async def run(self, handler: Handler, context: JobContext) -> Any:
        if handler.is_command:
            return await handler.invoke(context)
        return await self._threads.run(partial(copy_context().run, call, handler, context))


class ProcessExecutor:
    """Runs handlers in child processes, one job at a time in each. A process is reused, and killed if its job must stop."""

    lingering = 0

    def __init__(self) -> None:
        self.on_free: Callable[[], None] = _nothing
        self._processes = ProcessPool()

    async def prepare(self, handler: Handler) -> None:
        """Start a child process, unless one is idle, and have it import the handler."""
        if handler.portable and not handler.is_command:
            await self._processes.prepare(handler.name)

    async def run(self, handler: Handler, context: JobContext) -> Any:
        if handler.is_command:
            return await handler.invoke(context)
        if not handler.portable:
            raise InvalidInput(f"handler {handler.name!r}: a child process cannot import it; give it as module:function")
        return await self._processes.run(handler.name, context)

    async def run_in_thread(self, function: Callable[[], Any]) -> Any:
        raise InvalidInput(
            "expected the executor async or threads, got processes: a child process cannot use its worker's threads"
        )

    async def close(self) -> None:
        await self._processes.close()


def _nothing() -> None:
    """Do nothing: the default of ``on_free``."""


def executor(kind: ExecutorKind) -> Executor:
    match kind:
        case ExecutorKind.ASYNC:
            return LoopExecutor()
        case ExecutorKind.THREADS:
            return ThreadExecutor()
        case ExecutorKind.PROCESSES:
            return ProcessExecutor()


def call(handler: Handler, context: JobContext) -> Any:
    """Call a handler from code without an event loop, and return its result."""
    if handler.is_async:
        return asyncio.run(_call_in_loop(handler, context))
    context.main = threading.get_ident()
    return handler.invoke(context)


async def _call_in_loop(handler: Handler, context: JobContext) -> Any:
    context.main = asyncio.current_task()
    return await handler.invoke(context)
