"""The verdict on a whole run, the exit code that tells it, and how a run's row keeps it. It is decided in ``run_verdict``."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

from drumbeat.core.run import RUN_ENDED, Run, RunStatus

KEPT_UNDER = "verdict"  #: in the custom metrics of a run's row


class ExitStatus(IntEnum):
    """How ``bench run``, ``--exit-status`` and ``bench regress`` end, for programs that gate on it."""

    PASSED = 0  #: it completed, and missed nothing that was asked of it
    RUN_FAILED = 3  #: it did not complete, or came to nothing
    OBJECTIVES_MISSED = 4  #: an objective or the target throughput was missed, or was not measured
    REGRESSED = 5
    INCONCLUSIVE = 6  #: nothing to compare with, nothing comparable, or a run that has not ended


class RunVerdict(StrEnum):
    """One word for a whole run."""

    PASSED = "PASSED"  #: it completed, an objective or a target was set, and all of them were kept
    NO_OBJECTIVE = "NO_OBJECTIVE"  #: it completed, and nothing was asked of it that could be missed
    MISSED = "MISSED"  #: an objective or the target throughput was missed
    NOT_MEASURED = "NOT_MEASURED"  #: nothing was measured, or not what an objective is about
    FAILED = "FAILED"  #: it failed, every operation failed, or a search found no stable level
    CANCELLED = "CANCELLED"
    PENDING = "PENDING"  #: it has not ended


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJudgement:
    """A run's verdict, why it is so, and the exit code of the commands that tell it."""

    verdict: RunVerdict = RunVerdict.PENDING
    reason: str = ""
    gate: ExitStatus = ExitStatus.INCONCLUSIVE
    is_orphan: bool = False  #: it is under way, and no orchestrator leads it

    @property
    def headline(self) -> str:
        """The verdict with its reason, for people."""
        match self.verdict:
            case RunVerdict.PASSED:
                return "PASSED"
            case RunVerdict.NO_OBJECTIVE:
                return "COMPLETED, no objective was set"
            case _:
                return f"{self.verdict.replace('_', ' ')}: {self.reason}"

    @property
    def passed(self) -> bool | None:
        """True only where an objective was set and kept; None: none was set, or it is not known yet."""
        undecided = (RunVerdict.NO_OBJECTIVE, RunVerdict.PENDING)
        return None if self.verdict in undecided else self.verdict is RunVerdict.PASSED

    @property
    def is_bad(self) -> bool:
        """Whether people should look at it: something was missed or not measured, or the run failed."""
        return self.verdict in (RunVerdict.MISSED, RunVerdict.NOT_MEASURED, RunVerdict.FAILED)

    @property
    def is_success(self) -> bool:
        """Whether the commands that tell it end with 0."""
        return self.gate is ExitStatus.PASSED


def judgement_by_status(run: Run) -> RunJudgement | None:
    """The verdict on a run that did not complete: its status says it all."""
    match run.status:
        case RunStatus.COMPLETED:
            return None
        case RunStatus.FAILED:
            return RunJudgement(verdict=RunVerdict.FAILED, reason=_why(run, "the run failed"), gate=ExitStatus.RUN_FAILED)
        case RunStatus.CANCELLED:
            return RunJudgement(verdict=RunVerdict.CANCELLED, reason="the run was cancelled", gate=ExitStatus.RUN_FAILED)
        case _:
            return RunJudgement(verdict=RunVerdict.PENDING, reason=f"the run is {run.status}", gate=ExitStatus.INCONCLUSIVE)


def _why(run: Run, usual: str) -> str:
    return f"{usual}: {run.completion_reason}" if run.completion_reason else usual


def judgement_document(judgement: RunJudgement) -> dict[str, Any]:
    """A judgement as the row of its run keeps it."""
    return {"verdict": judgement.verdict, "reason": judgement.reason, "exit_code": int(judgement.gate)}


def kept_judgement(run: Run) -> RunJudgement | None:
    """The judgement that a run's own row tells; None: it completed and its row keeps none, so its results must be read."""
    unfinished = judgement_by_status(run)
    if unfinished is not None and run.status not in RUN_ENDED:
        return unfinished
    return _read(run.custom_metrics.get(KEPT_UNDER)) or unfinished


def _read(kept: object) -> RunJudgement | None:
    if not isinstance(kept, Mapping):
        return None
    try:
        return RunJudgement(
            verdict=RunVerdict(kept["verdict"]), reason=str(kept["reason"]), gate=ExitStatus(int(kept["exit_code"]))
        )
    except (KeyError, TypeError, ValueError):
        return None
