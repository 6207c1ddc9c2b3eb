from dataclasses import replace
from typing import Any

import pytest

from bench.recorded import record, search
from drumbeat.bench.model.plan import ALL_KINDS, Objective
from drumbeat.bench.model.record import Latency, Measured, RunRecord
from drumbeat.bench.model.verdict import ExitStatus, RunVerdict
from drumbeat.bench.results.run_verdict import judge_run
from drumbeat.bench.results.verdicts import (
    LimitStanding,
    Measure,
    SloVerdict,
    failure_despite_completion,
    judged_at,
    verdicts,
    verdicts_of,
)
from drumbeat.core.run import RunStatus


def verdict(limit: float, found: float | None) -> SloVerdict:
    return SloVerdict(kind="read", measure=Measure.P95, limit=limit, found=found)


@pytest.mark.parametrize(
    ("limit", "found", "standing"),
    [
        (10, 8.99, LimitStanding.OK),
        (10, 9.0, LimitStanding.NEAR),
        (10, 10.0, LimitStanding.NEAR),
        (10, 10.01, LimitStanding.OVER),
        (10, None, LimitStanding.NOT_MEASURED),
        (0, 0.0, LimitStanding.OK),
        (0, 0.001, LimitStanding.OVER),
    ],
)
def test_a_figure_is_near_at_nine_tenths_and_over_beyond_its_limit(
    limit: float, found: float | None, standing: LimitStanding
) -> None:
    assert verdict(limit, found).standing is standing
    assert verdict(limit, found).is_met is (found is not None and found <= limit)


def test_each_limit_that_is_set_has_a_verdict_all_kinds_together_first() -> None:
    objectives = {"write": Objective(p99_ms=5), ALL_KINDS: Objective(p95_ms=3, max_error_pct=1), "read": Objective(p95_ms=-1)}
    measured = Measured(operations=200, errors=4, latency=Latency(p95_ms=2.0, p99_ms=4.0))

    found = verdicts(objectives, {ALL_KINDS: measured, "write": measured})

    assert [(each.kind, each.measure, each.limit, each.found) for each in found] == [
        (ALL_KINDS, Measure.P95, 3, 2.0),
        (ALL_KINDS, Measure.ERRORS, 1, 2.0),
        ("write", Measure.P99, 5, 4.0),
    ]


def test_a_kind_that_did_nothing_is_not_measured() -> None:
    found = verdicts({"read": Objective(p95_ms=3, max_error_pct=1)}, {"read": Measured()})

    assert {each.standing for each in found} == {LimitStanding.NOT_MEASURED}


def searched(objectives: dict[str, Objective], **found: Any) -> RunRecord:
    """A search that found 60 connections at a p95 of 10 ms; over all its steps p95 was 50 ms."""
    plain = search(p95_ms=10.0)
    (result,) = plain.results
    slow = Measured(operations=1000, errors=100, latency=Latency(p95_ms=50.0, p99_ms=90.0))
    return replace(
        plain,
        plan=replace(plain.plan, objectives=objectives),
        totals={ALL_KINDS: slow, "read": slow},
        results=(replace(result, find_max_result={**(result.find_max_result or {}), **found}),),
    )


def test_a_search_is_judged_at_the_level_it_found() -> None:
    kinds = {"read": {"operations": 800, "errors": 0, "p50_ms": 3.0, "p95_ms": 4.0, "p99_ms": 5.0}}
    objectives = {ALL_KINDS: Objective(p95_ms=20, max_error_pct=1), "read": Objective(p99_ms=6)}

    found = searched(objectives, best_kinds=kinds)

    assert [each.found for each in verdicts_of(found)] == [10.0, 0.0, 5.0]
    assert judge_run(found).verdict is RunVerdict.PASSED
    assert judged_at(found) == "judged at the level found: 60 connections"


def test_a_kind_whose_figures_at_that_level_are_not_known_is_not_measured() -> None:
    (verdict,) = verdicts_of(searched({"read": Objective(p99_ms=6)}))

    assert verdict.standing is LimitStanding.NOT_MEASURED


def test_a_search_without_a_stable_level_kept_nothing_and_is_no_success() -> None:
    known = searched({ALL_KINDS: Objective(p95_ms=20)}, best_connections=None)

    assert {each.standing for each in verdicts_of(known)} == {LimitStanding.NOT_MEASURED}
    assert failure_despite_completion(known) == "no stable level"
    assert judge_run(searched({}, best_connections=None)).gate is ExitStatus.RUN_FAILED


@pytest.mark.parametrize(
    ("totals", "why"),
    [
        (Measured(operations=10, errors=10), "every operation failed"),
        (Measured(operations=10, errors=9), None),
        (Measured(), "nothing was measured"),
    ],
)
def test_a_run_in_which_nothing_went_well_is_no_success(totals: Measured, why: str | None) -> None:
    known = replace(record(), totals={ALL_KINDS: totals})

    assert failure_despite_completion(known) == why
    assert judge_run(known).gate is (ExitStatus.RUN_FAILED if why else ExitStatus.PASSED)


def test_why_a_run_failed_is_not_that_it_came_to_nothing() -> None:
    known = replace(record(), totals={})

    assert failure_despite_completion(replace(known, run=replace(known.run, status=RunStatus.FAILED))) is None
