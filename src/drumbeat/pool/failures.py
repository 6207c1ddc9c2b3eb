"""What a handler's failure comes to: an error short enough to keep, and whether another attempt makes sense."""

import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from drumbeat.core.errors import DrumbeatError, InvalidInput
from drumbeat.pool.context import JobFailure
from drumbeat.runtime.patience import cut

LONGEST = 4000
_OURS = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How a job has failed."""

    error: str
    fatal: bool = False
    retry_in: timedelta | None = None  #: None: as its backoff says


class FailedElsewhere(Exception):
    """A handler failed in another process, which has told how."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error)
        self.failure = failure


def failure(exc: BaseException) -> Failure:
    """An exception as a failure. A payload that does not fit its handler is fatal: it will not fit next time either."""
    if isinstance(exc, FailedElsewhere):
        return exc.failure
    if isinstance(exc, JobFailure):
        return Failure(error=shortened(str(exc) or "it failed"), fatal=exc.fatal, retry_in=exc.retry_in)
    if isinstance(exc, InvalidInput):
        return Failure(error=shortened(str(exc)), fatal=True)
    return Failure(error=shortened(_trace(exc)))


def shortened(text: str) -> str:
    """Its beginning and its end, as any database takes it."""
    if len(text) > LONGEST:
        text = f"{text[: LONGEST // 4]}\n…\n{text[-LONGEST * 3 // 4 :]}"
    return cut(text, LONGEST * 2)


def _trace(exc: BaseException) -> str:
    """What it says, then the handler's own part of the traceback."""
    if isinstance(exc, DrumbeatError):
        return str(exc)
    frames = [frame for frame in traceback.extract_tb(exc.__traceback__) if not frame.filename.startswith(_OURS)]
    said = "".join(traceback.format_exception_only(exc)).strip()
    return said + ("\n" + "".join(traceback.format_list(frames)).rstrip() if frames else "")
