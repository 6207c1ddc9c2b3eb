"""Records why and how a worker ends, and signals the decision to all its tasks."""

import asyncio
import logging
from dataclasses import dataclass
from datetime import timedelta

from drumbeat.core.worker import ExitCode, WorkerStatus

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndDecision:
    """The decision to end a worker: exit code, reason, and how much time the worker has to finish its work."""

    code: ExitCode
    reason: str
    drain: timedelta | None = None  #: how long finishing its work may take; None: it stops at once
    urgent: bool = False  #: whether to leave without waiting, since other workers may already have its work

    @property
    def status(self) -> WorkerStatus:
        return WorkerStatus.TERMINATED if self.code is ExitCode.CLEAN else WorkerStatus.ERROR


class Shutdown:
    """Holds the decision to end the worker. The first decision stands; only a failure during a clean end replaces it."""

    def __init__(self) -> None:
        self._end: EndDecision | None = None
        self.over = asyncio.Event()  #: set when the end is decided
        self.hurry = asyncio.Event()  #: set when the worker must not wait for anything

    @property
    def end(self) -> EndDecision:
        return self._end or EndDecision(code=ExitCode.CLEAN, reason="nothing was left to do")

    def decide(self, end: EndDecision) -> None:
        if self._end is None or (self._end.code is ExitCode.CLEAN and end.code is not ExitCode.CLEAN):
            log.log(logging.INFO if end.code is ExitCode.CLEAN else logging.ERROR, "this worker ends: %s", end.reason)
            self._end = end
        self.over.set()
        if end.urgent:
            self.hurry.set()
