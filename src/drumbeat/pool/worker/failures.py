"""Turns a handler's exception into a failure: an error short enough to store, and whether to retry."""

import math
import traceback
from dataclasses import dataclass
from datetime import timedelta
from numbers import Real
from pathlib import Path
from typing import Any

from drumbeat.core.errors import DrumbeatError, InvalidInput
from drumbeat.core.job import LONGEST_WAIT
from drumbeat.pool.worker.context import JobFailure
from drumbeat.runtime.timeouts import cut

LONGEST = 4000
_OURS = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerFailure:
    """The failure of one attempt at a job."""

    error: str
    fatal: bool = False
    retry_in: timedelta | None = None  #: None: by the job's backoff


class FailedElsewhere(Exception):
    """A handler failed in a child process, which reported the failure."""

    def __init__(self, failure: HandlerFailure) -> None:
        super().__init__(failure.error)
        self.failure = failure


def failure(exc: BaseException) -> HandlerFailure:
    """An exception as a failure. A payload that does not fit its handler is fatal: it will not fit next time either."""
    if isinstance(exc, FailedElsewhere):
        return exc.failure
    if isinstance(exc, JobFailure):
        return _as_said(exc)
    if isinstance(exc, InvalidInput):
        return HandlerFailure(error=shortened(str(exc)), fatal=True)
    return HandlerFailure(error=shortened(_trace(exc)))


def _as_said(exc: JobFailure) -> HandlerFailure:
    """The failure as the handler described it; with an invalid ``retry_in`` the job's backoff decides."""
    said, fatal = str(exc) or "the handler failed without a message", bool(exc.fatal)
    try:
        return HandlerFailure(error=shortened(said), fatal=fatal, retry_in=_wait(exc.retry_in))
    except InvalidInput as wrong:
        return HandlerFailure(error=shortened(f"{said} ({wrong})"), fatal=fatal)


def _wait(retry_in: object) -> timedelta | None:
    """How long to wait before the next attempt, within limits. Raises InvalidInput."""
    if retry_in is None:
        return None
    if isinstance(retry_in, timedelta):
        return min(max(retry_in, timedelta()), LONGEST_WAIT)
    if isinstance(retry_in, Real) and (seconds := _bounded(retry_in)) is not None:
        return timedelta(seconds=seconds)
    raise InvalidInput(f"expected retry_in to be seconds or a timedelta, got {retry_in!r}")


def _bounded(number: Any) -> float | None:
    """The number within limits; None for NaN and infinity."""
    if number != number or number in (math.inf, -math.inf):
        return None
    return float(min(max(number, 0), LONGEST_WAIT.total_seconds()))


def shortened(text: str) -> str:
    """The beginning and end of a long text, without characters that databases refuse."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 4]}\n…\n{text[-LONGEST * 3 // 4 :]}"
    return cut(text, LONGEST * 2)


def _trace(exc: BaseException) -> str:
    """The error message, then the handler's own part of the traceback."""
    if isinstance(exc, DrumbeatError):
        return str(exc)
    frames = [frame for frame in traceback.extract_tb(exc.__traceback__) if not frame.filename.startswith(_OURS)]
    said = "".join(traceback.format_exception_only(exc)).strip()
    return said + ("\n" + "".join(traceback.format_list(frames)).rstrip() if frames else "")
