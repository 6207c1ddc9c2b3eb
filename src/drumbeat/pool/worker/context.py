"""What a handler gets with a job: the job, its deadline, and how to report progress, failures and completion."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeVar, overload

from drumbeat.core.errors import InvalidInput
from drumbeat.core.job import Job, JobId
from drumbeat.pool.envelope import seal
from drumbeat.pool.own_transaction import AwaitedConnection, complete_on, stale_write, transactions_at
from drumbeat.pool.payload import MOST_BYTES, as_json
from drumbeat.pool.worker.steps import AttemptSteps, has_loop, run_blocking

Tell = Callable[["JobContext", float, str | None], None]
ReadParents = Callable[[JobId], Coroutine[Any, Any, Sequence[Job]]]
AskParents = Callable[[], Sequence[Job]]
R = TypeVar("R")
_FIRST_STEP = threading.Lock()  #: held while a job begins its first step
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class JobFailure(Exception):
    """Raise this in a handler to fail the job. If ``fatal``, the job is not retried; otherwise it is retried after
    ``retry_in``, or after the job's backoff if ``retry_in`` is None.

    ``retry_in`` is a timedelta or a number of seconds; less than 0 counts as 0, more than ten years as ten years.
    """

    fatal: bool = False
    retry_in: timedelta | float | None = None

    def __init__(self, message: str, *, fatal: bool = False, retry_in: timedelta | float | None = None) -> None:
        super().__init__(message)
        self.fatal = fatal
        self.retry_in = retry_in


class JobContext:
    """What a handler can know about the job it runs, and how it reports progress. Safe to use from any thread."""

    cancelled = False  #: True: the job must stop; a handler in a thread should check this and return
    headers: Mapping[str, str] = _NO_HEADERS  #: text that middleware has added to the job when it was pushed
    exception: BaseException | None = None  #: what the handler raised
    most_bytes = MOST_BYTES  #: the largest result that can be stored, in bytes of JSON
    settles_itself = False  #: the handler has called ``complete_on``: only the commit of its transaction counts
    unsent: tuple[float, str | None] | None = None  #: progress and note that the worker has not sent to the store yet
    is_locked = False  #: a transaction of the handler has locked the job, so that its lease cannot be renewed
    steps: AttemptSteps | None = None  #: its durable steps; None: it has begun none
    main: object = None  #: the task or thread that runs the handler itself, and not what the handler starts beside it
    #: makes ``steps`` for the context that it is given; None: this process cannot record any
    make_steps: Callable[["JobContext"], AttemptSteps] | None = None
    _read_parents: tuple[ReadParents, asyncio.AbstractEventLoop] | None = None
    _ask_parents: AskParents | None = None

    def __init__(
        self,
        job: Job,
        deadline: datetime | None = None,
        tell: Tell | None = None,
        store_url: str | None = None,
        on_lock: Callable[[bool], None] | None = None,
    ) -> None:
        """``tell`` is called with this context, and the progress and note that the handler reports; ``complete_on`` needs
        ``store_url``, the store's URL; ``on_lock`` is called with the new value of ``is_locked`` each time ``note_lock`` sets
        it."""
        self.job = job
        self.deadline = deadline  #: when the attempt times out; None: never
        self.store_url = store_url
        self._tell = tell
        self._on_lock = on_lock

    @property
    def job_id(self) -> JobId:
        return self.job.job_id

    @property
    def type(self) -> str:
        return self.job.type

    @property
    def attempt(self) -> int:
        """The number of this attempt at the job, counted from 1."""
        return self.job.attempts

    @property
    def payload(self) -> Any:
        return self.job.payload

    async def parents(self) -> Sequence[Job]:
        """Return the jobs that this job waited for, in the order of pushing, with their results."""
        if self.job.if_failed is None:
            return ()
        if self._ask_parents is not None:
            return await asyncio.to_thread(self._ask_parents)
        read, loop = self._parent_reader()
        if asyncio.get_running_loop() is loop:
            return await read(self.job_id)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(read(self.job_id), loop))

    def parents_blocking(self) -> Sequence[Job]:
        """Like ``parents``, but blocks the calling thread: for a handler that is a plain function. Raises InvalidInput in an
        async handler."""
        if self.job.if_failed is None:
            return ()
        if self._ask_parents is not None:
            return self._ask_parents()
        if has_loop():
            raise InvalidInput("parents_blocking() would block the event loop of an async handler; use await context.parents()")
        read, loop = self._parent_reader()
        return asyncio.run_coroutine_threadsafe(read(self.job_id), loop).result()

    def read_parents_by(self, read: ReadParents, loop: asyncio.AbstractEventLoop) -> None:
        """Let ``parents`` use the coroutine function ``read``, which must run on the event loop ``loop``."""
        self._read_parents = (read, loop)

    def ask_parents_by(self, ask: AskParents) -> None:
        """Let ``parents`` use the blocking function ``ask``: for a child process, which asks its worker, as it has no store."""
        self._ask_parents = ask

    def _parent_reader(self) -> tuple[ReadParents, asyncio.AbstractEventLoop]:
        if self._read_parents is None:
            raise InvalidInput("the parents of this job cannot be read here: its worker has no access to the store")
        return self._read_parents

    async def step(
        self, function: Callable[..., Awaitable[R] | R], *args: Any, step_name: str | None = None, **kwargs: Any
    ) -> R:
        """Run a function as a durable step: see ``drumbeat.step``."""
        result: R = await self._durable().run(step_name, function, args, kwargs)
        return result

    async def sleep(self, duration: timedelta | float) -> None:
        """Sleep durably: see ``drumbeat.sleep``."""
        await self._durable().sleep(duration)

    async def wait_for(self, name: str, timeout: timedelta | float | None = None) -> Any:  # noqa: ASYNC109
        """Wait for an event: see ``drumbeat.wait_for``."""
        return await self._durable().wait_for(name, timeout)

    def step_blocking(self, function: Callable[..., R], *args: Any, step_name: str | None = None, **kwargs: Any) -> R:
        """Like ``step``, for a handler that is a plain function: the step runs in the handler's own thread."""
        result: R = run_blocking(self._durable().run(step_name, function, args, kwargs))
        return result

    def sleep_blocking(self, duration: timedelta | float) -> None:
        """Like ``sleep``, for a handler that is a plain function."""
        run_blocking(self._durable().sleep(duration))

    def wait_for_blocking(self, name: str, timeout: timedelta | float | None = None) -> Any:
        """Like ``wait_for``, for a handler that is a plain function."""
        return run_blocking(self._durable().wait_for(name, timeout))

    def _durable(self) -> AttemptSteps:
        if self.steps is None:
            with _FIRST_STEP:  # a handler may begin steps in several threads
                if self.steps is None:
                    self.steps = self._new_steps()
        return self.steps

    def _new_steps(self) -> AttemptSteps:
        if self.make_steps is None:
            raise InvalidInput(
                "expected a job that a worker runs with the executor async or threads, got one that runs without a store; "
                "durable steps cannot be recorded here"
            )
        return self.make_steps(self)

    def progress(self, share: float, note: object = None) -> None:
        """Report progress from 0 to 1, with a note. The latest is stored, at most twice a second. Raises InvalidInput."""
        if not 0 <= share <= 1:
            raise InvalidInput(f"expected progress between 0 and 1, got {share!r}")
        if self._tell is not None:
            self._tell(self, float(share), None if note is None else str(note))

    @overload
    def complete_on(self, connection: AwaitedConnection, result: Any = None) -> Awaitable[None]: ...

    @overload
    def complete_on(self, connection: Any, result: Any = None) -> None: ...

    def complete_on(self, connection: Any, result: Any = None) -> Awaitable[None] | None:
        """Mark this job as done in the handler's own open transaction, on a connection to the store's own database.

        Commit before the handler returns: if the transaction is rolled back, the attempt has failed. What the handler returns
        is ignored. Commit soon: the job's lease is not renewed any more. Await this call if the driver is asynchronous.
        ``result`` is always kept in the store itself, so it can have at most a megabyte.
        Raises StaleWrite if the job was taken from this worker; InvalidInput for a connection that cannot be used.
        """
        checked, holder = seal(as_json(result, "result")), self.job.holder
        transactions = transactions_at(self.store_url, "complete_on")
        if holder is None:
            raise stale_write(self.job.token)
        was_locked = self.is_locked
        self.note_lock(True)
        try:
            outcome = complete_on(transactions, connection, holder, self.job.token, checked)
        except BaseException:
            self.note_lock(was_locked)
            raise
        return None if outcome is None else self._awaited(outcome, was_locked)

    async def _awaited(self, outcome: Awaitable[None], was_locked: bool) -> None:
        try:
            await outcome
        except BaseException:
            self.note_lock(was_locked)
            raise

    def note_lock(self, is_locked: bool) -> None:
        """Record that the handler has called ``complete_on``, and whether its transaction now locks the job's row."""
        self.settles_itself, self.is_locked = True, is_locked
        if self._on_lock is not None:
            self._on_lock(is_locked)
