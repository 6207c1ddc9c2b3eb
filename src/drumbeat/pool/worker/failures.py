"""Turns a handler's exception into what is stored: a short error text, and whether and when to retry."""

import math
import os
import traceback
from dataclasses import dataclass
from datetime import timedelta
from numbers import Real
from pathlib import Path
from typing import Any

from drumbeat.core.errors import DrumbeatError, InvalidInput, LargeLost
from drumbeat.core.job import LONGEST_WAIT
from drumbeat.pool.worker.context import JobFailure
from drumbeat.pool.worker.steps import StepFailed
from drumbeat.runtime.timeouts import truncate

LONGEST = 4000
_PACKAGE = Path(__file__).parents[2]
_OURS = tuple(
    os.path.join(_PACKAGE, part) for part in ("pool/worker/", "tasks/", "testing.py")
)  #: our own code that calls handlers and tasks; it is left out of tracebacks


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerFailure:
    """How one attempt at a job failed: the error text, and whether and when to retry."""

    error: str
    fatal: bool = False
    retry_in: timedelta | None = None  #: how long until the retry; None: the job's backoff decides


class ChildProcessFailure(Exception):
    """Raised in the worker if a handler failed in a child process; holds the failure that the child process reported."""

    def __init__(self, failure: HandlerFailure) -> None:
        super().__init__(failure.error)
        self.failure = failure


def failure(exc: BaseException) -> HandlerFailure:
    """Convert an exception to a failure. Invalid input and a lost large value are fatal, because a retry cannot help."""
    if isinstance(exc, ChildProcessFailure):
        return exc.failure
    if isinstance(exc, StepFailed) and isinstance(exc.__cause__, Exception):
        return failure(exc.__cause__)
    if isinstance(exc, JobFailure):
        return _from_job_failure(exc)
    if isinstance(exc, InvalidInput | LargeLost):
        return HandlerFailure(error=shortened(str(exc)), fatal=True)
    return HandlerFailure(error=shortened(_trace(exc)))


def _from_job_failure(exc: JobFailure) -> HandlerFailure:
    """Convert a handler's JobFailure to a HandlerFailure. If its ``retry_in`` is invalid, the job's usual backoff applies."""
    said, fatal = str(exc) or "the handler failed without a message", bool(exc.fatal)
    try:
        return HandlerFailure(error=shortened(said), fatal=fatal, retry_in=_wait(exc.retry_in))
    except InvalidInput as wrong:
        return HandlerFailure(error=shortened(f"{said} ({wrong})"), fatal=fatal)


def _wait(retry_in: object) -> timedelta | None:
    """Convert a handler's ``retry_in`` to a duration between 0 and LONGEST_WAIT. Raises InvalidInput."""
    if retry_in is None:
        return None
    if isinstance(retry_in, timedelta):
        return min(max(retry_in, timedelta()), LONGEST_WAIT)
    if isinstance(retry_in, Real) and (seconds := _bounded(retry_in)) is not None:
        return timedelta(seconds=seconds)
    raise InvalidInput(f"expected retry_in to be seconds or a timedelta, got {retry_in!r}")


def _bounded(number: Any) -> float | None:
    """Limit seconds to between 0 and LONGEST_WAIT; None for NaN and infinity, which are invalid."""
    if number != number or number in (math.inf, -math.inf):
        return None
    return float(min(max(number, 0), LONGEST_WAIT.total_seconds()))


def shortened(text: str) -> str:
    """Cut the middle out of a long text, and remove characters that databases refuse."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 4]}\n…\n{text[-LONGEST * 3 // 4 :]}"
    return truncate(text, LONGEST * 2)


def _trace(exc: BaseException) -> str:
    """Return the error message, then the traceback without Drumbeat's own frames."""
    if isinstance(exc, DrumbeatError):
        return str(exc)
    frames = [frame for frame in traceback.extract_tb(exc.__traceback__) if not frame.filename.startswith(_OURS)]
    said = "".join(traceback.format_exception_only(exc)).strip()
    return said + ("\n" + "".join(traceback.format_list(frames)).rstrip() if frames else "")
