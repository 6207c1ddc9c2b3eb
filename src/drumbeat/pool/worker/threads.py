"""Threads for blocking handlers. They are daemon threads, so a handler that does not stop cannot keep the process alive."""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Task = tuple[Callable[[], Any], Callable[[Callable[[], Any]], None]]


class Threads:
    """Runs functions in threads beside the event loop. Threads are reused."""

    def __init__(self, on_free: Callable[[], None]) -> None:
        """``on_free`` is called on the event loop when a function returns after its call of ``run`` was cancelled."""
        self._on_free = on_free
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._made = 0
        self._idle = 0
        self.lingering = 0  #: threads whose call was cancelled but whose function still runs

    async def run(self, work: Callable[[], Any]) -> Any:
        """Run ``work`` in a thread. If this call is cancelled, the thread lingers until the function returns."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        self._submit((work, lambda outcome: _deliver(loop, self._answer, answer, outcome)))
        try:
            return await answer
        except asyncio.CancelledError:
            if not answer.done() or answer.cancelled():
                self.lingering += 1
            raise

    def _submit(self, task: Task) -> None:
        if self._idle > 0:
            self._idle -= 1
        else:
            self._made += 1
            threading.Thread(target=self._serve, name=f"handler-{self._made}", daemon=True).start()
        self._tasks.put(task)

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            work, report = task
            report(_outcome(work))

    def _answer(self, answer: "asyncio.Future[Any]", outcome: Callable[[], Any]) -> None:
        """Pass a function's outcome to the waiting call of ``run``; called on the event loop."""
        self._idle += 1
        if answer.cancelled():
            self.lingering -= 1
            self._on_free()
            return
        try:
            answer.set_result(outcome())
        except Exception as exc:
            answer.set_exception(exc)

    def close(self) -> None:
        """End idle threads now, and busy threads when their function returns."""
        for _ in range(self._made):
            self._tasks.put(None)


def _outcome(work: Callable[[], Any]) -> Callable[[], Any]:
    try:
        value = work()
    except BaseException as exc:
        failure = exc
        return lambda: _raise(failure)
    return lambda: value


def _raise(failure: BaseException) -> Any:
    if isinstance(failure, Exception) and not isinstance(failure, StopIteration):
        raise failure
    raise RuntimeError(f"the handler raised {type(failure).__name__}: {failure}") from failure


def _deliver(loop: asyncio.AbstractEventLoop, report: Callable[..., None], *given: Any) -> None:
    try:
        loop.call_soon_threadsafe(report, *given)
    except RuntimeError:  # the loop is closed: the outcome is not needed any more
        return
