"""The decorator ``task``: turns a function into a task, which can still be called, and can be pushed as jobs."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import JobsWithTemplate, NewJob
from drumbeat.pool.own_transaction import AwaitedConnection, then
from drumbeat.pool.validation import check_duration, check_time
from drumbeat.pool.worker.context import JobContext
from drumbeat.pool.worker.handlers import Handler, describe
from drumbeat.pool.worker.task_call import TaskFunction
from drumbeat.tasks.flow import TaskJob, output_ids, output_jobs, with_outputs
from drumbeat.tasks.options import DEFAULT_POOL, PushOptions, TaskOptions, check_unique, template, unique_key
from drumbeat.tasks.periodic import read_timing
from drumbeat.tasks.pushed import PushedJob
from drumbeat.tasks.queue import TaskQueue, queues

P = ParamSpec("P")  #: the parameters of a task, without its JobContext
R = TypeVar("R")  #: the result of a task, awaited if it is async
C = ParamSpec("C")  #: the parameters of the function itself
V = TypeVar("V")  #: what the function itself returns: for an async one a coroutine


class BoundCall(Generic[P]):
    """A task with the arguments of one call, checked and ready to push."""

    def __init__(self, task: "Task[P, Any]", payload: Any) -> None:
        self.task_name = task.task_name
        self.payload = payload
        self._task = task

    def new_job(self) -> NewJob:
        """Return the job of this call, with the task's options."""
        return self._task.new_jobs([self.payload])[0]


class Task(TaskFunction, Generic[P, R]):
    """A function that can be pushed as jobs. The methods whose names begin with ``a`` are for coroutines."""

    __name__: str  #: the function's name

    def __init__(self, function: Callable[..., Any], options: PushOptions, name: str | None = None) -> None:
        """``options`` are the task's options; ``name`` is the type of its jobs. Raises InvalidInput for a wrong option."""
        super().__init__(function, name)
        self._options = options
        self._template = template(self.task_name, options)
        self._unique = options.get("unique", False)
        self.pool = options.get("pool", DEFAULT_POOL)
        self.store = options.get("store")  #: the store's URL; None: the default store
        self.timing = read_timing(self.task_name, options)  #: when the task is due; None: it is not periodic
        if self._unique is not False:
            check_unique(self.task_name, self._unique, self.parameters.signature.parameters)
        update_wrapper(self, function)
        if self.timing is not None:
            self._check_periodic()

    def _check_periodic(self) -> None:
        """Raise InvalidInput unless the function can be called without arguments, as its schedule calls it."""
        try:
            self.scheduled_job()
        except InvalidInput as exc:
            raise InvalidInput(f"a periodic task is called without arguments; give each parameter a default: {exc}") from exc

    def scheduled_job(self) -> NewJob:
        """Return the job that the task's schedule pushes: a call without arguments."""
        return self._jobs(self._template, (), {})[0]

    def __repr__(self) -> str:
        return f"<task {self.task_name} of pool {self.pool}>"

    def __reduce__(self) -> str:
        return (self.handler_name or self.function.__qualname__).rpartition(":")[2]

    def push(self, *args: P.args, **kwargs: P.kwargs) -> PushedJob[R]:
        """Push a job that calls the function with these arguments. Raises InvalidInput that names a wrong parameter."""
        return self._push(self._jobs(self._template, args, kwargs))

    async def apush(self, *args: P.args, **kwargs: P.kwargs) -> PushedJob[R]:
        """Like ``push``, for coroutines."""
        return await self._apush(self._jobs(self._template, args, kwargs))

    def push_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> PushedJob[R]:
        """Push a job that runs at ``when`` at the earliest, a datetime with a time zone."""
        return self._push(self._jobs(self._at(when), args, kwargs))

    async def apush_at(self, when: datetime, /, *args: P.args, **kwargs: P.kwargs) -> PushedJob[R]:
        """Like ``push_at``, for coroutines."""
        return await self._apush(self._jobs(self._at(when), args, kwargs))

    def push_in(self, delay: timedelta | float, /, *args: P.args, **kwargs: P.kwargs) -> PushedJob[R]:
        """Push a job that runs after ``delay`` at the earliest, a timedelta or seconds."""
        return self._push(self._jobs(self._in(delay), args, kwargs))

    async def apush_in(self, delay: timedelta | float, /, *args: P.args, **kwargs: P.kwargs) -> PushedJob[R]:
        """Like ``push_in``, for coroutines."""
        return await self._apush(self._jobs(self._in(delay), args, kwargs))

    @overload
    def push_on(self, connection: AwaitedConnection, /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[PushedJob[R]]: ...
    @overload
    def push_on(self, connection: Any, /, *args: P.args, **kwargs: P.kwargs) -> PushedJob[R]: ...
    def push_on(self, connection: Any, /, *args: P.args, **kwargs: P.kwargs) -> PushedJob[R] | Awaitable[PushedJob[R]]:
        """Push a job in the caller's open transaction, on a connection to the store's own database. The pool must exist.

        Await the result if the connection's driver is asynchronous. Raises InvalidInput like ``push``, and for a connection
        that cannot be used; NotFound if there is no such pool.
        """
        queue = self._queue()
        ids = queue.push_on(self.pool, self, self._jobs(self._template, args, kwargs), connection)
        return then(ids, lambda found: PushedJob(found[0], self.pool, self, queue))

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> BoundCall[P]:
        """Return a call of this task with these arguments, for ``push_many``. Raises InvalidInput like ``push``."""
        return BoundCall(self, self.payload(args, kwargs))

    def new_jobs(self, payloads: Sequence[Any]) -> Sequence[NewJob]:
        """Return jobs with these payloads and the task's options."""
        return self._with_keys(payloads, self._template)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> TaskJob[R]:
        """Return a job that calls the function with these arguments, as part of a workflow: ``fetch.job(url).then(count)``.

        The ``output`` of another job can be an argument. Raises InvalidInput like ``push``.
        """
        plain_args, plain_kwargs, outputs = with_outputs(args, kwargs)
        payload = self.payload(plain_args, plain_kwargs)
        [new] = self.new_jobs([payload])
        if outputs and self._unique is not False:
            raise InvalidInput(f"task {self.task_name}: a unique task cannot get the result of another job as an argument")
        new = replace(new, payload={**payload, **output_ids(outputs)})
        return TaskJob(self, self.pool, self.store, new, output_jobs(outputs))

    def push_many(self, calls: Iterable[BoundCall[P]]) -> list[PushedJob[R]]:
        """Push one job for each call: all of them, or none. ``send_mail.push_many(send_mail.bind(to) for to in addresses)``"""
        queue = self._queue()
        return self._pushed(queue, queue.push(self.pool, self, self._many(calls)))

    async def apush_many(self, calls: Iterable[BoundCall[P]]) -> list[PushedJob[R]]:
        """Like ``push_many``, for coroutines."""
        queue = self._queue()
        return self._pushed(queue, await queue.apush(self.pool, self, self._many(calls)))

    def with_options(self, **options: Unpack[PushOptions]) -> "Task[P, R]":
        """Return this task with other options: ``send_mail.with_options(priority=9).push("a@x")``. Raises InvalidInput."""
        if "name" in options:
            raise InvalidInput(
                f"task {self.task_name}: expected options of its jobs, got name, by which workers find the task; "
                f"to use another name, make another task of the function: task(name=…)({self.function.__name__})"
            )
        return Task(self.function, {**self._options, **options}, self.task_name)

    def _queue(self) -> TaskQueue:
        return queues.find(self.store)

    def _push(self, jobs: Sequence[NewJob]) -> PushedJob[R]:
        queue = self._queue()
        return PushedJob(queue.push(self.pool, self, jobs)[0], self.pool, self, queue)

    async def _apush(self, jobs: Sequence[NewJob]) -> PushedJob[R]:
        queue = self._queue()
        return PushedJob((await queue.apush(self.pool, self, jobs))[0], self.pool, self, queue)

    def _pushed(self, queue: TaskQueue, ids: Sequence[str]) -> list[PushedJob[R]]:
        return [PushedJob(job_id, self.pool, self, queue) for job_id in ids]

    def _jobs(self, like: NewJob, args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[NewJob]:
        return self._with_keys([self.payload(args, kwargs)], like)

    def _many(self, calls: Iterable[BoundCall[P]]) -> Sequence[NewJob]:
        payloads = []
        for call in calls:
            if not isinstance(call, BoundCall) or call.task_name != self.task_name:
                name = self.function.__name__
                raise InvalidInput(f"task {self.task_name}: expected calls made with {name}.bind(…), got {call!r}")
            payloads.append(call.payload)
        return self.new_jobs(payloads)

    def _with_keys(self, payloads: Sequence[Any], like: NewJob) -> Sequence[NewJob]:
        if self._unique is False:
            return JobsWithTemplate(payloads, like)
        keys = [unique_key(self.task_name, self._unique, self.parameters, payload) for payload in payloads]
        return [replace(like, payload=payload, unique_key=key) for payload, key in zip(payloads, keys, strict=True)]

    def _at(self, when: datetime) -> NewJob:
        return replace(self._template, run_at=check_time("when", when))

    def _in(self, delay: timedelta | float) -> NewJob:
        return replace(self._template, delay=check_duration("delay", delay))


class CallableTask(Task[P, R], Generic[P, R, C, V]):
    """A task as the decorator returns it. Calling it runs the function directly, without a job."""

    def __call__(self, *args: C.args, **kwargs: C.kwargs) -> V:
        result: V = self.function(*args, **kwargs)
        return result


def task_handlers(tasks: Iterable[Task[..., Any]]) -> dict[str, Handler]:
    """Return the handlers of tasks, by type of job."""
    return {each.task_name: describe(each) for each in tasks}


class TaskDecorator(Protocol):
    """The decorator that ``task(**options)`` returns: it turns a function into a task.

    If the function's first parameter is a JobContext, the worker passes it; a call of ``push`` must not."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
    ) -> CallableTask[P, R, Concatenate[JobContext, P], Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[JobContext, P], R], /
    ) -> CallableTask[P, R, Concatenate[JobContext, P], R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> CallableTask[P, R, P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> CallableTask[P, R, P, R]: ...


@overload
def task(
    function: Callable[Concatenate[JobContext, P], Coroutine[Any, Any, R]], /
) -> CallableTask[P, R, Concatenate[JobContext, P], Coroutine[Any, Any, R]]: ...
@overload
def task(function: Callable[Concatenate[JobContext, P], R], /) -> CallableTask[P, R, Concatenate[JobContext, P], R]: ...
@overload
def task(function: Callable[P, Coroutine[Any, Any, R]], /) -> CallableTask[P, R, P, Coroutine[Any, Any, R]]: ...
@overload
def task(function: Callable[P, R], /) -> CallableTask[P, R, P, R]: ...
@overload
def task(**options: Unpack[TaskOptions]) -> TaskDecorator: ...
def task(function: Any = None, /, **options: Unpack[TaskOptions]) -> Any:
    """Turn a function into a task: ``@task`` or ``@task(pool="mail", max_attempts=5)``. Raises InvalidInput.

    ``send_mail.push("a@x", subject="hi")`` then pushes a job, and ``drumbeat pool work MODULE`` runs it.
    """
    if function is not None:
        return CallableTask(function, options, options.get("name"))
    return lambda decorated: CallableTask(decorated, options, options.get("name"))
