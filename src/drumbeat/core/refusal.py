"""Refusals: an engine did not start a worker, but might do so later. The worker keeps its row; the engine is asked again."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from drumbeat.core.engine import DEFAULT_ENGINE
from drumbeat.core.errors import SpawnCause, SpawnFailed
from drumbeat.core.worker import REFUSED, Worker, WorkerStatus

TIMES_REFUSED = "times_refused"  #: key in a row's ``meta``: how often the engine has refused to start the worker
_CURABLE = frozenset({SpawnCause.NO_CAPACITY, SpawnCause.RATE_LIMITED, SpawnCause.TRANSIENT})
_SUBJECT = re.compile(r"^worker \S+(?: of [^:]*)?: ")
_FIRST_WAIT, _LONGEST_WAIT = timedelta(seconds=2), timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRefusal:
    """The last refusal of an engine to start a worker that the pool still needs: when, why, and how often so far."""

    reason: str
    cause: SpawnCause
    at: datetime
    times: int = 1  #: how often the worker was refused so far
    retry_after: timedelta | None = None  #: how long the engine asks to wait

    @property
    def retry_at(self) -> datetime:
        """When to ask the engine again: after the wait that it requested, else after a wait that doubles with each refusal."""
        wait = min(_FIRST_WAIT * 2 ** min(self.times - 1, 10), _LONGEST_WAIT)
        return self.at + (wait if self.retry_after is None else self.retry_after)


def is_curable(cause: SpawnCause, engines: str | None) -> bool:
    """Whether an engine that refused for this cause might start the worker later; ``local`` only if it had no free slot."""
    return cause is SpawnCause.NO_CAPACITY or (cause in _CURABLE and engines != DEFAULT_ENGINE)


def refusal_of(worker: Worker) -> StartRefusal | None:
    """Return why and when the engine refused to start a worker; None if it did not, or if the worker has joined or ended."""
    stored = worker.meta.get(REFUSED)
    if not stored or worker.status is not WorkerStatus.SPAWNING:
        return None
    wait = stored.get("retry_after_seconds")
    return StartRefusal(
        reason=str(stored["reason"]),
        cause=SpawnCause(stored["cause"]),
        at=datetime.fromisoformat(stored["at"]),
        times=int(worker.meta.get(TIMES_REFUSED) or 1),
        retry_after=None if wait is None else timedelta(seconds=wait),
    )


def refusal_meta(refusal: SpawnFailed, at: datetime, times: int) -> Mapping[str, Any]:
    """Return the entries that a refusal adds to ``meta`` of the worker's row: reason, cause, time, wait, and how often."""
    wait = {} if refusal.retry_after is None else {"retry_after_seconds": refusal.retry_after.total_seconds()}
    stored = {
        "reason": refusal_text(str(refusal)),
        "cause": refusal.cause.value,
        "at": at.isoformat(),
        **wait,
    }
    return {REFUSED: stored, TIMES_REFUSED: times}


def refusal_text(error: str) -> str:
    """Return an engine's error without the worker's name in front (``worker X: …``, ``worker X of Y could not be started: …``),
    as the error is shown next to that name."""
    return _SUBJECT.sub("", error, count=1)
