"""Judges a whole run: its verdict, reason and exit code. Pure.

The command line, reports, pages, the API and lists all show the verdict of ``judge_run``, which is stored when the run ends.
"""

from dataclasses import replace

from drumbeat.bench.model.plan import LoadMode
from drumbeat.bench.model.record import RunRecord
from drumbeat.bench.model.verdict import (
    KEPT_UNDER,
    ExitStatus,
    RunJudgement,
    RunVerdict,
    judgement_by_status,
    stored_judgement,
)
from drumbeat.bench.model.words import number, texts_that_differ
from drumbeat.bench.results.verdicts import Measure, SloVerdict, failure_despite_completion, verdicts_of

_MEASURES = {
    Measure.P95: ("p95", "ms"),
    Measure.P99: ("p99", "ms"),
    Measure.ERRORS: ("error rate", "%"),
    Measure.AVAILABILITY: ("availability", "%"),
}
BOUNDS_REACHED = "BOUNDS_LIMIT_REACHED"


def judge_run(record: RunRecord) -> RunJudgement:
    """Return the verdict on a run (failed, missed an objective, passed and so on), with the reason and the exit code. If no
    verdict is stored with the run, its figures are judged."""
    stored = stored_judgement(record.run) if KEPT_UNDER in record.run.custom_metrics else None
    return stored or _judge_figures(record)


def _judge_figures(record: RunRecord) -> RunJudgement:
    unfinished = judgement_by_status(record.run)
    if unfinished is not None:
        failure = record.result.failure_reason if record.result else None
        return replace(unfinished, reason=failure) if failure else unfinished
    if nothing := failure_despite_completion(record):
        verdict = RunVerdict.FAILED if record.whole.operations else RunVerdict.NOT_MEASURED
        return RunJudgement(verdict=verdict, reason=nothing, gate=ExitStatus.RUN_FAILED)
    return _judge_objectives(record)


def _judge_objectives(record: RunRecord) -> RunJudgement:
    found = verdicts_of(record)
    target = missed_target(record)
    missed = [*([target] if target else []), *(_describe(each) for each in found if not each.is_met and each.found is not None)]
    unknown = [_describe(each) for each in found if each.found is None]
    if missed:
        return RunJudgement(verdict=RunVerdict.MISSED, reason="; ".join(missed + unknown), gate=ExitStatus.OBJECTIVES_MISSED)
    if unknown:
        return RunJudgement(verdict=RunVerdict.NOT_MEASURED, reason="; ".join(unknown), gate=ExitStatus.OBJECTIVES_MISSED)
    objectives = len(found) + has_target(record)
    if not objectives:
        return RunJudgement(verdict=RunVerdict.NO_OBJECTIVE, reason="no objective was set", gate=ExitStatus.PASSED)
    return RunJudgement(verdict=RunVerdict.PASSED, reason=_all_met(objectives), gate=ExitStatus.PASSED)


def _all_met(objectives: int) -> str:
    return "its objective was met" if objectives == 1 else f"all {objectives} objectives were met"


def has_target(record: RunRecord) -> bool:
    """Whether the run has a target throughput (QPS mode), which counts as an objective."""
    return record.plan.load_mode is LoadMode.QPS


def missed_target(record: RunRecord) -> str | None:
    """Return text that says how far the run missed its target throughput; None if it was reached (with tolerance) or not set.

    Only successful operations count.
    """
    if not has_target(record):
        return None
    plan, reached = record.plan.qps, _successes_per_second(record)
    at_bounds = record.run.completion_reason == BOUNDS_REACHED
    if not at_bounds and reached >= plan.target_qps - plan.tolerance:
        return None
    bounds = ", and the bounds were reached" if at_bounds else ""
    found, target = texts_that_differ(reached, plan.target_qps, 4)
    return f"throughput: {found} of {target} operations/s{bounds}"


def _successes_per_second(record: RunRecord) -> float:
    whole = record.whole
    return whole.qps * (1 - whole.errors / whole.operations) if whole.operations else 0.0


def _describe(verdict: SloVerdict) -> str:
    """Describe an objective that was missed or not measured: metric, value and limit."""
    name, unit = _MEASURES[verdict.measure]
    if verdict.found is None:
        return f"{name} of {verdict.subject}: not measured, limit {number(verdict.limit, 4)} {unit}"
    found, limit = texts_that_differ(verdict.found, verdict.limit, 4)
    return f"{name} of {verdict.subject}: {found} {unit}, limit {limit} {unit}"
