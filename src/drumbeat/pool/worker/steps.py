"""The durable steps of one attempt at a job: returns the results of steps that are recorded, and runs and records new ones."""

import asyncio
import contextlib
import inspect
import json
import math
import threading
import typing
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextvars import ContextVar, copy_context
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import LONGEST_WAIT, Job, JobId, JobOutcome
from drumbeat.core.job_step import JobStep, NewStep, StepKind
from drumbeat.core.plain import short_repr, time_span
from drumbeat.pool.payload import as_json
from drumbeat.pool.typed_values import converter
from drumbeat.pool.worker.suspension import JobSuspended, Suspension
from drumbeat.runtime.timeouts import truncate

_LONGEST_ERROR = 4000  #: characters of a step's error that are stored
T = TypeVar("T")
RunInThread = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]

A_MOMENT = timedelta(seconds=1)  #: a sleep of at most this long keeps its worker; the job is not suspended
_IN_STEP: ContextVar[str | None] = ContextVar("drumbeat_step", default=None)  #: the name of the step that runs
#: the last failed step of the current task, or of the task that started it, if it failed before the start
_LAST_FAILED: ContextVar[JobStep | None] = ContextVar("drumbeat_failed_step", default=None)


class StepFailed(Exception):
    """A step's function raised an error, which is the cause of this exception (``__cause__``).

    Unless the handler catches it, the attempt fails, and the next attempt runs the step again. If the handler catches it and
    goes on to another step, the failure is recorded, and later attempts raise it again without running the step.
    """

    def __init__(self, name: str, error: str) -> None:
        super().__init__(f"step {name!r} failed: {error}")
        self.name = name
        self.error = error  #: the type and message of the error, such as ``ValueError: no such card``


class StepStore(Protocol):
    """Reads and writes the recorded steps of the jobs that one worker runs."""

    async def read(self, job_id: JobId) -> Sequence[JobStep]:
        """Return the events that were sent to a job, and its steps."""
        ...

    async def write(self, new: NewStep) -> None:
        """Record a step, and return when it is committed. Raises StaleWrite if the job was taken from this worker."""
        ...

    async def sleep(self, duration: timedelta) -> None: ...


class AttemptSteps:
    """The steps of one attempt. A step is found by its position: the n-th step of a job must always be the same one."""

    def __init__(
        self,
        job: Job,
        recorded: Sequence[JobStep],
        store: StepStore,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], datetime],
        run_in_thread: RunInThread,
        is_locked: Callable[[], bool] = lambda: False,
        main: Callable[[], object] = lambda: None,
    ) -> None:
        """``recorded``: what earlier attempts have recorded, and the events; ``now`` returns the time by the store's clock;
        ``run_in_thread`` runs the plain functions of an async handler; ``is_locked`` returns whether the handler has locked the
        job by ``complete_on``; ``main`` returns the task or thread that runs the handler itself. ``loop`` is the worker's event
        loop, to which ``store`` and ``run_in_thread`` belong."""
        self.suspension: Suspension | None = None  #: the attempt must end: the job sleeps or waits for an event
        self._job = job
        self._store = store
        self._now = now
        self._run_in_thread = run_in_thread
        self._is_locked = is_locked
        self._main = main
        self._loop = loop
        self._recorded = {step.position: step for step in recorded if step.position > 0}
        self._events = {step.name: step for step in recorded if step.kind is StepKind.SENT}
        self._received: set[str] = set()  #: the events that this attempt has received
        self._last = 0  #: the position of the last step that was begun
        #: failed steps, each with the task or thread that ran it: they are recorded if the handler goes on
        self._failed: dict[int, tuple[JobStep, object]] = {}
        self._running = 0  #: steps that run now
        self._counting = threading.Lock()  #: a handler may have steps in several threads
        self._until_idle: list[Future[None]] = []  #: futures of tasks that wait until no step runs
        self._suspended: set[object] = set()  #: the tasks of the handler that sleep or wait for an event

    def suspended_outcome(self) -> JobOutcome | None:
        """Return the outcome if the attempt must end now because the job sleeps or waits for an event; None if it goes on."""
        return None if self.suspension is None else self.suspension.outcome(self._job, self._now())

    async def run(self, name: str | None, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a function as the next step and record its result; if it is recorded already, only return the result.

        Raises StepFailed; InvalidInput if the result is no JSON, or if the recorded step has another name.
        """
        called = step_name(function) if name is None else _checked_name(name)
        with self._counted():
            known, position = await self._begin(StepKind.STEP, called)
            if known is not None and known.error is not None:
                raise StepFailed(called, known.error)
            if known is not None:
                return _typed(function, known.result)
            return await self._run(position, called, function, args, kwargs)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """Count a step while it runs. When no step runs any more, let the tasks that wait in ``_suspend`` go on."""
        with self._counting:
            self._running += 1
        try:
            yield
        finally:
            with self._counting:
                self._running -= 1
                waiting = [] if self._running else self._until_idle
            for each in waiting:
                with contextlib.suppress(InvalidStateError):
                    each.set_result(None)

    async def _run(
        self, position: int, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        started = self._now()
        try:
            value = await self._call(name, function, args, kwargs)
        except Exception as exc:
            self._note_failure(position, name, started, exc)
        result = as_json(value, f"the result of step {name!r}")
        await self._write(_ended_step(position, name, started, self._now(), result=result))
        return _typed(function, json.loads(json.dumps(result)))

    async def _call(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a step's function: a plain one in a thread, or directly if the handler has its own thread."""
        outer = _IN_STEP.set(name)
        try:
            if is_async(function) or not has_loop():
                value = function(*args, **kwargs)
            else:
                value = await self._on_loop(self._run_in_thread(partial(copy_context().run, function, *args, **kwargs)))
            return await value if inspect.isawaitable(value) else value
        finally:
            _IN_STEP.reset(outer)

    async def sleep(self, duration: timedelta | float) -> None:
        """Sleep until a moment that is recorded. A long sleep ends the attempt: the job is claimed again at that moment."""
        length = _checked_length("sleep", duration)
        known, position = await self._begin(StepKind.SLEEP, "sleep")
        now = self._now()
        until = known.until if known is not None and known.until is not None else now + length
        if known is None:
            step = JobStep(position=position, name="sleep", kind=StepKind.SLEEP, started_at=now, finished_at=until, until=until)
            await self._write(step)
        left = until - self._now()
        if left > A_MOMENT:
            await self._suspend(Suspension(why=f"sleeps until {until:%Y-%m-%d %H:%M:%S} UTC", until=until))
        if left > timedelta():
            await self._on_loop(self._store.sleep(left))

    async def wait_for(self, name: str, timeout: timedelta | float | None = None) -> Any:  # noqa: ASYNC109
        """Return the value of an event that was sent to the job. If there is none yet, the attempt ends, and the job is claimed
        again when the event is sent. Raises TimeoutError ``timeout`` after the first call."""
        called = _checked_name(name)
        limit = None if timeout is None else _checked_length("timeout", timeout)
        known, position = await self._begin(StepKind.EVENT, called)
        if known is not None and known.finished_at is not None:
            return self._received_event(known)
        now = self._now()
        started = now if known is None else known.started_at
        until = known.until if known is not None else None if limit is None else now + limit
        step = JobStep(position=position, name=called, kind=StepKind.EVENT, started_at=started, until=until)
        if (event := self._events.get(called)) is not None:
            return await self._finish_event(step, event.result, None)
        if until is not None and now >= until:
            return await self._finish_event(step, None, f"no event {called!r} was sent within {time_span(until - started)}")
        if known is None:
            await self._write(step)
        return await self._suspend(Suspension(why=f"waits for event {called!r}", until=until, seen_events=len(self._events)))

    async def _finish_event(self, step: JobStep, value: Any, error: str | None) -> Any:
        if error is None and step.name in self._received:
            raise InvalidInput(
                f"expected another name of an event, got {step.name!r} again: a job receives one event of each name; "
                f"wait for another name, such as {step.name + '-2'!r}"
            )
        finished = replace(step, result=value, error=error, finished_at=self._now())
        await self._write(finished)
        return self._received_event(finished)

    def _received_event(self, step: JobStep) -> Any:
        if step.error is not None:
            raise TimeoutError(step.error)
        self._received.add(step.name)
        return step.result

    async def _begin(self, kind: StepKind, name: str) -> tuple[JobStep | None, int]:
        """Return the record of the next step (None: not run yet) and its position. First records the failures of earlier steps
        that the handler has caught. Raises JobSuspended; InvalidInput if the record is of another step."""
        if self.suspension is not None and (kind is StepKind.STEP or _place() in self._suspended):
            raise JobSuspended
        if (outer := _IN_STEP.get()) is not None:
            raise InvalidInput(
                f"expected steps one after another, got {kind} {name!r} inside of step {outer!r}; call it in the handler itself"
            )
        self._check_unlocked(kind, name)
        caught = [each for each, (step, place) in self._failed.items() if self._has_caught(step, place)]
        failed = [self._failed.pop(each)[0] for each in caught]
        self._last += 1
        position, known = self._last, self._recorded.get(self._last)
        if known is not None and (known.kind, known.name) != (kind, name):
            raise InvalidInput(
                f"expected step {position} of this job to be {known.kind} {known.name!r}, as an earlier attempt recorded, "
                f"got {kind} {name!r}: the code has changed; restore the order of steps and requeue the job, or push a new one"
            )
        for each in failed:
            await self._write(each)
        return known, position

    def _has_caught(self, step: JobStep, place: object) -> bool:
        """Whether the handler has caught the failure of ``step``, which ran in the task or thread ``place``, now that it begins
        a new step. If it has not, the new step only runs at the same time as the failed one.

        True if the new step begins in the same task, or in a task that this one started after the failure; if it begins in the
        handler's own task, which has received the error of the failed task, for example from ``gather``; or if both steps run
        in threads, one of which is the handler's own.
        """
        if _LAST_FAILED.get() is step:
            return True
        here, main = _place(), self._main()
        if not isinstance(place, asyncio.Task):
            return main in (here, place)
        return here == main and place.done() and not place._log_traceback  # noqa: SLF001

    def _note_failure(self, position: int, name: str, started: datetime, exc: Exception) -> NoReturn:
        error = truncate(f"{type(exc).__name__}: {_message(exc)}", _LONGEST_ERROR)
        failed = _ended_step(position, name, started, self._now(), error=error)
        self._failed[position] = failed, _place()
        _LAST_FAILED.set(failed)
        raise StepFailed(name, error) from exc

    async def _suspend(self, suspension: Suspension) -> NoReturn:
        """End the attempt, but first let the steps finish that run at the same time, in other tasks of the handler."""
        self.suspension = suspension if self.suspension is None else self.suspension.or_earlier(suspension)
        self._suspended.add(_place())
        idle: Future[None] = Future()
        with self._counting:
            self._until_idle.append(idle)
            must_wait = self._running > 0
        if must_wait:
            await (asyncio.wrap_future(idle) if has_loop() else _blocking(idle))
        raise JobSuspended

    def _check_unlocked(self, kind: StepKind, name: str) -> None:
        """Raise InvalidInput after ``complete_on``: a step and the handler's open transaction would wait for each other."""
        if self._is_locked():
            raise InvalidInput(
                f"expected all steps before complete_on, got {kind} {name!r} after it: until the handler's transaction ends, "
                "no step of the job can be recorded; run every step first, then begin the transaction that completes the job"
            )

    async def _write(self, step: JobStep) -> None:
        self._check_unlocked(step.kind, step.name)
        await self._on_loop(self._store.write(NewStep(token=self._job.token, step=step)))

    async def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the worker's event loop. A thread without an event loop waits for it."""
        if not has_loop():
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        if asyncio.get_running_loop() is self._loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


def _ended_step(
    position: int, name: str, started: datetime, finished: datetime, *, result: Any = None, error: str | None = None
) -> JobStep:
    kind = StepKind.STEP
    return JobStep(
        position=position, name=name, kind=kind, result=result, error=error, started_at=started, finished_at=finished
    )


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"expected the name of a step or event to be text, got {short_repr(name)}")
    return name


def _checked_length(what: str, value: Any) -> timedelta:
    """Return a duration of at most ten years; a negative one counts as 0. Raises InvalidInput."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        raise InvalidInput(f"expected {what} to be a timedelta or seconds, got {short_repr(value)}")
    return timedelta(seconds=max(min(seconds, LONGEST_WAIT.total_seconds()), 0))


def _place() -> object:
    """Return the current task, or the id of the current thread if no event loop runs in it."""
    return asyncio.current_task() if has_loop() else threading.get_ident()


async def _blocking(future: "Future[T]") -> T:
    """Return the result of a future, and block the current thread until it is there: only for threads without an event loop."""
    return future.result()


def has_loop() -> bool:
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop() is not None
    return False


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of AttemptSteps in the thread of a plain handler, without an event loop. Raises InvalidInput."""
    try:
        if has_loop():
            raise InvalidInput("expected a handler that is a plain function, got an async one; use await step(…) there")
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        work.close()
    raise InvalidInput("expected a step that is a plain function, got an async one; use await step(…) in an async handler")


def is_async(function: Callable[..., Any]) -> bool:
    inner = function.func if isinstance(function, partial) else function
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(type(inner).__call__)


def step_name(function: Callable[..., Any]) -> str:
    """Return a function's name, the default name of its step. A later attempt compares names to notice a changed step."""
    inner = function.func if isinstance(function, partial) else function
    name = getattr(inner, "__qualname__", None)
    return name if isinstance(name, str) else type(inner).__qualname__


def _typed(function: Callable[..., Any], result: Any) -> Any:
    """Return a recorded result as the type that the step's function is annotated with."""
    try:
        hint = typing.get_type_hints(function).get("return")
    except (NameError, TypeError, AttributeError):
        return result
    convert = converter("result", hint)
    return result if convert is None else convert(result)


def _message(exc: Exception) -> str:
    try:
        return str(exc)
    except Exception as wrong:
        return f"(its message cannot be read: {type(wrong).__name__})"
