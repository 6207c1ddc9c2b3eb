"""Verdicts on runs, for pages and the API. The verdict of an ended run is read once and cached."""

from collections import OrderedDict
from collections.abc import Iterable

from drumbeat.bench.model import ORPHANED, RunJudgement, RunVerdict
from drumbeat.composition.plane import ControlPlane
from drumbeat.core.errors import MissingExtra
from drumbeat.core.run import RUN_ENDED, Run, RunId, RunStatus

_MOST = 10_000  #: maximum number of cached verdicts
WORDS = {
    RunVerdict.PASSED: "passed",
    RunVerdict.MISSED: "objectives missed",
    RunVerdict.FAILED: "failed",
    RunVerdict.CANCELLED: "cancelled",
    RunVerdict.NO_OBJECTIVE: "no objective set",
    RunVerdict.NOT_MEASURED: "not measured",
}
_CHANGING = frozenset({RunStatus.STARTING, RunStatus.STOPPING, RunStatus.CANCELLING})
_COLOURS = {
    RunVerdict.PASSED: "positive",
    RunVerdict.MISSED: "negative",
    RunVerdict.FAILED: "negative",
    RunVerdict.CANCELLED: "grey-8",
    RunVerdict.NO_OBJECTIVE: "grey-8",
    RunVerdict.NOT_MEASURED: "negative",
    RunVerdict.PENDING: "grey-8",
}


class Verdicts:
    """Reads and caches the verdicts on runs, and reads their summaries."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._known: OrderedDict[RunId, RunJudgement] = OrderedDict()

    async def of(self, run: Run) -> RunJudgement:
        """Return the verdict on a run; an empty verdict if the bench extra is not installed."""
        if (known := self._known.get(run.run_id)) is not None:
            return known
        try:
            found = await self._plane.bench().judgement(run)
        except MissingExtra:
            return RunJudgement()
        if run.status in RUN_ENDED:
            self._remember(run.run_id, found)
        return found

    async def summary_of(self, run: Run) -> tuple[str, ...]:
        """Return the summary of an ended run, as sentences. Empty while it is active, or without the bench extra."""
        try:
            return await self._plane.bench().summary(run)
        except MissingExtra:
            return ()

    async def of_all(self, runs: Iterable[Run]) -> dict[RunId, RunJudgement]:
        return {run.run_id: await self.of(run) for run in runs}

    def _remember(self, run_id: RunId, found: RunJudgement) -> None:
        self._known[run_id] = found
        while len(self._known) > _MOST:
            self._known.popitem(last=False)


def verdict_words(judgement: RunJudgement) -> str | None:
    """Return an ended run's verdict as text; ORPHANED for an active run without orchestrator; None for other active runs."""
    if judgement.is_orphan:
        return ORPHANED
    return WORDS.get(judgement.verdict)


def verdict_colour(judgement: RunJudgement) -> str:
    if judgement.is_orphan:
        return "warning"
    return _COLOURS[judgement.verdict]


def status_colour(run: Run, judgement: RunJudgement) -> str:
    """Return the colour of a status badge: green only if the run has passed, or is RUNNING with an orchestrator."""
    if judgement.is_orphan or run.status in _CHANGING:
        return "warning"
    if judgement.is_bad:
        return "negative"
    is_good = run.status is RunStatus.RUNNING or judgement.verdict is RunVerdict.PASSED
    return "positive" if is_good else "grey-8"
