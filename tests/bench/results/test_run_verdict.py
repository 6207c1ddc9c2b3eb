"""The verdict on a whole run: PASSED only where something was asked of it and kept."""

from dataclasses import replace
from typing import Any

import pytest

from bench.recorded import record
from drumbeat.bench.model.plan import ALL_KINDS, LoadMode, Objective, QpsPlan, RunPlan
from drumbeat.bench.model.record import Latency, Measured, RunRecord
from drumbeat.bench.model.verdict import KEPT_UNDER, ExitStatus, RunVerdict, judgement_document, stored_judgement
from drumbeat.bench.results.run_verdict import judge_run
from drumbeat.core.run import Result, RunStatus

KEPT, OVER, NEVER = Objective(p95_ms=20), Objective(p95_ms=5), Objective(max_error_pct=1)
FOUND = Measured(operations=10_000, seconds=10, latency=Latency(p95_ms=10))


def ended(
    objectives: dict[str, Objective] | None = None,
    target: float | None = None,
    measured: Measured = FOUND,
    status: RunStatus = RunStatus.COMPLETED,
    reason: str = "DURATION",
) -> RunRecord:
    mode = LoadMode.CONCURRENCY if target is None else LoadMode.QPS
    plan = RunPlan(load_mode=mode, objectives=objectives or {}, qps=QpsPlan(target_qps=target or 100))
    plain = record(plan=plan)
    run = replace(plain.run, status=status, completion_reason=reason)
    return replace(plain, run=run, totals={ALL_KINDS: measured} if measured.operations else {})


CASES: list[Any] = [
    ("nothing was asked", ended(), RunVerdict.NO_OBJECTIVE, 0),
    ("a kept objective", ended({ALL_KINDS: KEPT}), RunVerdict.PASSED, 0),
    ("a missed one", ended({ALL_KINDS: OVER}), RunVerdict.MISSED, 4),
    ("a kind that never ran", ended({ALL_KINDS: KEPT, "gone": NEVER}), RunVerdict.NOT_MEASURED, 4),
    ("one missed, one not measured", ended({ALL_KINDS: OVER, "gone": NEVER}), RunVerdict.MISSED, 4),
    ("the throughput was reached", ended(target=1000), RunVerdict.PASSED, 0),
    ("within 5 %", ended(target=1052), RunVerdict.PASSED, 0),
    ("the throughput was missed", ended(target=2000), RunVerdict.MISSED, 4),
    ("reached by failures alone", ended(target=1000, measured=replace(FOUND, errors=600)), RunVerdict.MISSED, 4),
    (
        "connections that failed take nothing from it",
        ended(target=1000, measured=replace(FOUND, failed_connects=9_000)),
        RunVerdict.PASSED,
        0,
    ),
    ("bounds reached", ended(target=1000, reason="BOUNDS_LIMIT_REACHED"), RunVerdict.MISSED, 4),
    ("throughput reached, objective missed", ended({ALL_KINDS: OVER}, target=1000), RunVerdict.MISSED, 4),
    ("nothing was measured", ended({ALL_KINDS: KEPT}, measured=Measured()), RunVerdict.NOT_MEASURED, 3),
    ("every operation failed", ended(measured=replace(FOUND, errors=10_000)), RunVerdict.FAILED, 3),
    ("the run failed", ended({ALL_KINDS: KEPT}, status=RunStatus.FAILED), RunVerdict.FAILED, 3),
    ("cancelled", ended({ALL_KINDS: KEPT}, status=RunStatus.CANCELLED), RunVerdict.CANCELLED, 3),
    ("still running", ended({ALL_KINDS: KEPT}, status=RunStatus.RUNNING), RunVerdict.PENDING, 6),
]


@pytest.mark.parametrize(("known", "verdict", "code"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_run_has_one_verdict_and_its_exit_code(known: RunRecord, verdict: RunVerdict, code: int) -> None:
    found = judge_run(known)

    assert (found.verdict, found.gate) == (verdict, ExitStatus(code)), found.reason
    assert (found.passed is True) == (verdict is RunVerdict.PASSED)


def test_a_reason_names_figure_value_and_limit() -> None:
    found = judge_run(ended({ALL_KINDS: OVER}, target=2000, reason="BOUNDS_LIMIT_REACHED"))

    assert found.reason == (
        "throughput: 1,000 of 2,000 operations/s, and the bounds were reached; p95 of all kinds: 10 ms, limit 5 ms"
    )


def test_a_run_that_failed_says_why() -> None:
    known = ended(status=RunStatus.FAILED, reason="WORKER_LOST")
    told = Result(run_id=known.run.run_id, failure_reason="worker-1 was lost: killed by signal 9")

    assert judge_run(known).reason == "the run failed: WORKER_LOST"
    assert judge_run(replace(known, results=(told,))).reason == "worker-1 was lost: killed by signal 9"


@pytest.mark.parametrize("known", [case[1] for case in CASES], ids=[case[0] for case in CASES])
def test_the_row_of_a_run_keeps_its_verdict(known: RunRecord) -> None:
    found = judge_run(known)
    kept = replace(known.run, custom_metrics={KEPT_UNDER: judgement_document(found)})

    assert stored_judgement(kept) == found


def test_the_verdict_in_the_row_holds_whatever_figures_are_left() -> None:
    missed, kept = ended({ALL_KINDS: OVER}), ended({ALL_KINDS: KEPT})
    found = judge_run(missed)
    run = replace(kept.run, custom_metrics={KEPT_UNDER: judgement_document(found)})

    assert judge_run(replace(kept, run=run)) == found
    assert judge_run(replace(kept, run=replace(run, status=RunStatus.RUNNING))).verdict is RunVerdict.PENDING


def test_a_row_without_a_verdict_tells_what_its_status_does() -> None:
    statuses = {status: stored_judgement(replace(ended().run, status=status)) for status in RunStatus}

    told = {status: found.verdict for status, found in statuses.items() if found is not None}
    assert (told.pop(RunStatus.FAILED), told.pop(RunStatus.CANCELLED)) == (RunVerdict.FAILED, RunVerdict.CANCELLED)
    assert statuses[RunStatus.COMPLETED] is None
    assert set(told.values()) == {RunVerdict.PENDING}
