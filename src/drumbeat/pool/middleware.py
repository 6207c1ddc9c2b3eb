"""Middleware: a user's hooks around pushes and attempts. A hook sees a job and its headers; its errors never affect the job."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drumbeat.core.errors import InvalidInput, MissingExtra
from drumbeat.core.job import AttemptOutcome, Job, JobId, JobOutcome, NewJob
from drumbeat.core.plain import short_repr
from drumbeat.core.pool import PoolId
from drumbeat.pool.importing import import_object

log = logging.getLogger(__name__)

MOST_HEADERS = 8192  #: the most bytes of all headers of one job together
SLOWEST_HOOK = 10.0  #: seconds after which an async hook is cancelled
HOOKS = ("before_push", "after_push", "before_attempt", "after_attempt", "on_retry", "on_poison")
_REVERSED = frozenset({"after_push", "after_attempt"})  #: called in reverse order, so that the first middleware is outermost


@dataclass(slots=True, eq=False, kw_only=True)
class OutgoingJob:
    """A job that is being pushed, as hooks see it. Hooks can change its ``headers``."""

    type: str
    payload: Any
    headers: dict[str, str] = field(default_factory=dict)
    job_id: JobId | None = None  #: known in ``after_push``


@dataclass(slots=True, eq=False, kw_only=True)
class PushCall:
    """One push of one or more jobs, as hooks see it."""

    pool_id: PoolId
    jobs: Sequence[OutgoingJob]
    error: BaseException | None = None  #: in ``after_push``: why the push failed; None: the jobs are in the store


@dataclass(slots=True, eq=False, kw_only=True)
class AttemptCall:
    """One attempt at a job, as hooks see it. Changes of ``headers`` last for this attempt only."""

    job: Job
    headers: dict[str, str]
    outcome: JobOutcome | None = None  #: known when the handler has ended; None then: the worker was stopped
    exception: BaseException | None = None  #: what the handler raised; for a child process, a ChildProcessFailure

    @property
    def is_poisoned(self) -> bool:
        """Whether the attempt failed for the last time, so that the job becomes poisoned."""
        return self._failed and (self._outcome.fatal or self.job.failures + 1 >= self.job.max_attempts)

    @property
    def is_retried(self) -> bool:
        """Whether the attempt failed and the job is tried again."""
        return self._failed and not self.is_poisoned

    @property
    def _outcome(self) -> JobOutcome:
        return self.outcome or JobOutcome(token=self.job.token, outcome=AttemptOutcome.RELEASED)

    @property
    def _failed(self) -> bool:
        return self._outcome.outcome in (AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT)


class Middleware:
    """The hooks that a middleware can have, as plain or async methods. Subclassing is optional: one hook is enough.

    ``before_*`` hooks are called in the order of registration, ``after_*`` hooks in reverse. A plain method must not block.
    """

    def before_push(self, push: PushCall) -> Awaitable[None] | None:
        """Called before jobs are written to the store; can change the headers of each job."""

    def after_push(self, push: PushCall) -> Awaitable[None] | None:
        """Called when the push has ended, also if it failed (``push.error``)."""

    def before_attempt(self, attempt: AttemptCall) -> Awaitable[None] | None:
        """Called in the worker just before the handler."""

    def after_attempt(self, attempt: AttemptCall) -> Awaitable[None] | None:
        """Called when the handler has ended and ``attempt.outcome`` is known, before the outcome is written to the store."""

    def on_retry(self, attempt: AttemptCall) -> Awaitable[None] | None:
        """Called before ``after_attempt`` if the attempt failed and the job is tried again."""

    def on_poison(self, attempt: AttemptCall) -> Awaitable[None] | None:
        """Called before ``after_attempt`` if the attempt failed for the last time."""


Hook = Callable[[Any], Awaitable[None] | None]


class MiddlewareChain:
    """The middleware of one process, in order. The errors of a hook are logged, each kind once, and have no other effect."""

    def __init__(self, members: Sequence[object]) -> None:
        """Raises InvalidInput for an object without any hook."""
        found = [_checked(member) for member in members]
        self._hooks: Mapping[str, Sequence[Hook]] = {
            name: [hook for member in (reversed(found) if name in _REVERSED else found) if (hook := _hook(member, name))]
            for name in HOOKS
        }
        self._logged: set[tuple[Any, str]] = set()
        self.members = tuple(found)

    def has(self, *names: str) -> bool:
        return any(self._hooks[name] for name in names)

    async def call(self, name: str, event: "PushCall | AttemptCall") -> None:
        """Call the hook ``name`` of every middleware. A hook's errors are logged, not raised, even its own CancelledError."""
        for hook in self._hooks[name]:
            try:
                if (result := hook(event)) is not None and inspect.isawaitable(result):
                    async with asyncio.timeout(SLOWEST_HOOK):
                        await result
            except asyncio.CancelledError as exc:
                if _is_being_cancelled():
                    raise
                self._log(hook, name, exc)
            except Exception as exc:
                self._log(hook, name, exc)

    def call_blocking(self, name: str, event: PushCall) -> None:
        """Call the hook ``name`` of every middleware without awaiting anything. Async hooks are skipped, and logged once."""
        for hook in self._hooks[name]:
            try:
                if (result := hook(event)) is not None and inspect.isawaitable(result):
                    if inspect.iscoroutine(result):
                        result.close()
                    self._log_skipped(hook, name)
            except asyncio.CancelledError as exc:
                if _is_being_cancelled():
                    raise
                self._log(hook, name, exc)
            except Exception as exc:
                self._log(hook, name, exc)

    def _log_skipped(self, hook: Hook, name: str) -> None:
        if (hook, "skipped") not in self._logged:
            self._logged.add((hook, "skipped"))
            where = getattr(hook, "__qualname__", name)
            log.warning(
                "middleware hook %s skipped: expected a plain method for a push on a blocking connection, got an async one; "
                "make it plain, or push on an asynchronous connection; later cases are not logged",
                where,
            )

    def _log(self, hook: Hook, name: str, exc: BaseException) -> None:
        key = (hook, type(exc).__name__)
        if key not in self._logged:
            self._logged.add(key)
            where = getattr(hook, "__qualname__", name)
            log.warning("middleware hook %s failed: %r; the job is not affected, later errors are not logged", where, exc)

    async def around_push(
        self, pool_id: PoolId, jobs: Sequence[NewJob], send: Callable[[Sequence[OutgoingJob]], Awaitable[Sequence[JobId]]]
    ) -> Sequence[JobId]:
        """Call the hooks before and after ``send``, which pushes the jobs with the hooks' headers and returns the jobs' ids."""
        call = _push_call(pool_id, jobs)
        await self.call("before_push", call)
        self._check_headers(call)
        try:
            ids = await send(call.jobs)
        except BaseException as exc:
            call.error = exc
            await self.call("after_push", call)
            raise
        _note_ids(call, ids)
        await self.call("after_push", call)
        return ids

    def around_blocking_push(
        self, pool_id: PoolId, jobs: Sequence[NewJob], send: Callable[[Sequence[OutgoingJob]], Sequence[JobId]]
    ) -> Sequence[JobId]:
        """Push jobs like ``around_push``, but where nothing can be awaited: async hooks are skipped."""
        call = _push_call(pool_id, jobs)
        self.call_blocking("before_push", call)
        self._check_headers(call)
        try:
            ids = send(call.jobs)
        except BaseException as exc:
            call.error = exc
            self.call_blocking("after_push", call)
            raise
        _note_ids(call, ids)
        self.call_blocking("after_push", call)
        return ids

    def _check_headers(self, call: PushCall) -> None:
        for job in call.jobs:
            job.headers = self.checked_headers(job.headers)

    async def ended(self, call: AttemptCall) -> None:
        """Call the hooks of an attempt whose outcome is known."""
        if call.is_poisoned:
            await self.call("on_poison", call)
        elif call.is_retried:
            await self.call("on_retry", call)
        await self.call("after_attempt", call)

    def checked_headers(self, headers: object) -> dict[str, str]:
        """Return the headers if names and values are text and not too long; otherwise drop them all, which is logged once."""
        if isinstance(headers, dict) and all(isinstance(each, str) for pair in headers.items() for each in pair):
            size = sum(len(each.encode("utf-8", "replace")) for pair in headers.items() for each in pair)
            if size <= MOST_HEADERS:
                return {_plain(name): _plain(value) for name, value in headers.items()}
        if (None, "headers") not in self._logged:
            self._logged.add((None, "headers"))
            log.warning(
                "headers dropped: expected a dict of texts, at most %d bytes, got %s; the job is pushed without them, "
                "later cases are not logged",
                MOST_HEADERS,
                short_repr(headers),
            )
        return {}


def _is_being_cancelled() -> bool:
    """Whether the current task is being cancelled. If it is not, a CancelledError was raised by the hook itself."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return False
    return task is not None and task.cancelling() > 0


def _push_call(pool_id: PoolId, jobs: Sequence[NewJob]) -> PushCall:
    return PushCall(pool_id=pool_id, jobs=[OutgoingJob(type=job.type, payload=job.payload) for job in jobs])


def _note_ids(call: PushCall, ids: Sequence[JobId]) -> None:
    for job, job_id in zip(call.jobs, ids, strict=True):
        job.job_id = job_id


def _plain(text: str) -> str:
    """Replace characters that some stores refuse."""
    return text.replace("\0", "�").encode("utf-8", "replace").decode()


def load_middleware(specs: Sequence[str]) -> list[object]:
    """Import middleware by name (``module:object``). Raises InvalidInput that names the one that cannot be used."""
    return [_made(import_object(spec, "middleware", "an object with hooks"), spec) for spec in specs]


def _made(found: Any, spec: str) -> object:
    if not isinstance(found, type):
        return found
    try:
        return found()
    except MissingExtra:
        raise
    except Exception as exc:
        raise InvalidInput(f"middleware {spec!r}: cannot create {found.__name__}(): {type(exc).__name__}: {exc}") from exc


def _checked(member: object) -> object:
    if isinstance(member, type) or not any(callable(getattr(member, name, None)) for name in HOOKS):
        raise InvalidInput(f"expected middleware to be an object with one of {', '.join(HOOKS)}, got {short_repr(member)}")
    return member


def _hook(member: object, name: str) -> Hook | None:
    """Return the member's hook; None if it has none, or only inherits the empty one of the class Middleware."""
    found = getattr(member, name, None)
    if not callable(found) or getattr(found, "__func__", None) is getattr(Middleware, name):
        return None
    hook: Hook = found
    return hook
