"""The verdict on a run (passed, missed, failed …), its exit code, and how both are stored in the run's row."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

from drumbeat.core.run import RUN_ENDED, Run, RunStatus

KEPT_UNDER = "verdict"  #: the key of the verdict in the custom metrics of a run's row
ORPHANED = "not controlled (no orchestrator)"  #: in lists, in place of the verdict of an active run


class ExitStatus(IntEnum):
    """Exit codes of ``bench run``, ``--exit-status`` and ``bench regress``, for CI gates."""

    PASSED = 0  #: the run completed, and no objective was missed
    RUN_FAILED = 3  #: the run did not complete, or has no usable result
    OBJECTIVES_MISSED = 4  #: an objective or the target throughput was missed, or was not measured
    REGRESSED = 5
    INCONCLUSIVE = 6  #: there is no baseline, the runs are not comparable, or the run has not ended


class RunVerdict(StrEnum):
    """Whether a run met its objectives, or why that is not known."""

    PASSED = "PASSED"  #: the run completed, and all objectives and targets were met
    NO_OBJECTIVE = "NO_OBJECTIVE"  #: the run completed, and had no objective or target
    MISSED = "MISSED"  #: an objective or the target throughput was missed
    NOT_MEASURED = "NOT_MEASURED"  #: nothing was measured, or a figure for which an objective is set was not
    FAILED = "FAILED"  #: the run failed, every operation failed, or find-max found no stable level
    CANCELLED = "CANCELLED"
    PENDING = "PENDING"  #: the run has not ended


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJudgement:
    """A run's verdict, its reason, and the exit code for it."""

    verdict: RunVerdict = RunVerdict.PENDING
    reason: str = ""
    gate: ExitStatus = ExitStatus.INCONCLUSIVE
    is_orphan: bool = False  #: the run is active, but no orchestrator controls it

    @property
    def headline(self) -> str:
        """Return the verdict with its reason, as one line of text."""
        match self.verdict:
            case RunVerdict.PASSED:
                return "PASSED"
            case RunVerdict.NO_OBJECTIVE:
                return "COMPLETED, no objective was set"
            case _:
                return f"{self.verdict.replace('_', ' ')}: {self.reason}"

    @property
    def short(self) -> str:
        """Return the verdict in one or a few words, for lists."""
        return ORPHANED if self.is_orphan else str(self.verdict)

    @property
    def passed(self) -> bool | None:
        """True if all objectives were met, None if there are none or the run has not ended, else False (also if cancelled)."""
        undecided = (RunVerdict.NO_OBJECTIVE, RunVerdict.PENDING)
        return None if self.verdict in undecided else self.verdict is RunVerdict.PASSED

    @property
    def is_bad(self) -> bool:
        """Whether the run needs attention: an objective was missed or not measured, or the run failed."""
        return self.verdict in (RunVerdict.MISSED, RunVerdict.NOT_MEASURED, RunVerdict.FAILED)

    @property
    def is_success(self) -> bool:
        """Whether the exit code for the run is 0."""
        return self.gate is ExitStatus.PASSED


def judgement_by_status(run: Run) -> RunJudgement | None:
    """Return the verdict on a run that did not complete, from its status; None if it completed."""
    match run.status:
        case RunStatus.COMPLETED:
            return None
        case RunStatus.FAILED:
            return RunJudgement(verdict=RunVerdict.FAILED, reason=_reason(run, "the run failed"), gate=ExitStatus.RUN_FAILED)
        case RunStatus.CANCELLED:
            return RunJudgement(verdict=RunVerdict.CANCELLED, reason="the run was cancelled", gate=ExitStatus.RUN_FAILED)
        case _:
            return RunJudgement(verdict=RunVerdict.PENDING, reason=f"the run is {run.status}", gate=ExitStatus.INCONCLUSIVE)


def _reason(run: Run, default: str) -> str:
    return f"{default}: {run.completion_reason}" if run.completion_reason else default


def judgement_document(judgement: RunJudgement) -> dict[str, Any]:
    """Convert a judgement to plain data for the run's row."""
    return {"verdict": judgement.verdict, "reason": judgement.reason, "exit_code": int(judgement.gate)}


def stored_judgement(run: Run) -> RunJudgement | None:
    """Return a run's verdict from its row. None if a completed run has no verdict there: the caller must judge its results."""
    unfinished = judgement_by_status(run)
    if unfinished is not None and run.status not in RUN_ENDED:
        return unfinished
    return _read(run.custom_metrics.get(KEPT_UNDER)) or unfinished


def _read(stored: object) -> RunJudgement | None:
    if not isinstance(stored, Mapping):
        return None
    try:
        return RunJudgement(
            verdict=RunVerdict(stored["verdict"]), reason=str(stored["reason"]), gate=ExitStatus(int(stored["exit_code"]))
        )
    except (KeyError, TypeError, ValueError):
        return None
