"""Chooses the baseline run to compare with, and turns a comparison into an exit code. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from drumbeat.bench.model.verdict import ExitStatus
from drumbeat.bench.results.compare.changes import FigureChange
from drumbeat.bench.results.compare.comparison import Comparison
from drumbeat.bench.results.verdicts import failure_despite_completion
from drumbeat.core.run import Run, RunStatus

_EVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An earlier run that could be the baseline of a comparison."""

    run: Run
    passed: bool  #: whether the run completed and missed no objective


def last_good(candidates: Iterable[Candidate], run: Run) -> Run | None:
    """Return the newest run before ``run`` that passed and is of the same kind (see ``is_same_kind``), or None."""
    good = [
        each.run
        for each in candidates
        if each.passed and each.run.status is RunStatus.COMPLETED and _is_before(each.run, run) and is_same_kind(each.run, run)
    ]
    return max(good, key=_made, default=None)


def is_same_kind(other: Run, run: Run) -> bool:
    """Whether both runs have the same load mode and the same template; without a template, the same configuration or name."""
    if _load_mode(other) != _load_mode(run):
        return False
    if run.template_id is not None:
        return other.template_id == run.template_id
    if run.config.get("config_hash") is not None:
        return bool(other.config.get("config_hash") == run.config["config_hash"])
    return other.name == run.name


def baseline_criterion(run: Run) -> str:
    """Return what a baseline must share with this run, as text: template, configuration or name."""
    if run.template_id is not None:
        return f"template {run.template_id}"
    return "configuration" if run.config.get("config_hash") is not None else f"name {run.name!r}"


def regress(comparison: Comparison | None) -> ExitStatus:
    """Return the exit code of ``bench regress``. It is INCONCLUSIVE if there is no comparison, and RUN_FAILED if the later run
    failed, whatever its figures."""
    if comparison is None:
        return ExitStatus.INCONCLUSIVE
    if comparison.after.run.status is not RunStatus.COMPLETED or failure_despite_completion(comparison.after):
        return ExitStatus.RUN_FAILED
    match comparison.change:
        case FigureChange.REGRESSED:
            return ExitStatus.REGRESSED
        case FigureChange.INCONCLUSIVE:
            return ExitStatus.INCONCLUSIVE
        case _:
            return ExitStatus.PASSED


def _is_before(other: Run, run: Run) -> bool:
    return other.run_id != run.run_id and (run.created_at is None or _made(other) <= run.created_at)


def _made(run: Run) -> datetime:
    return run.created_at or _EVER


def _load_mode(run: Run) -> Any:
    plan = run.config.get("plan")
    return plan.get("load_mode") if isinstance(plan, dict) else run.config.get("load_mode")
