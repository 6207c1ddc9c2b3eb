import pytest

from drumbeat.bench.model.plan import ALL_KINDS, Objective
from drumbeat.bench.model.record import Latency, Measured
from drumbeat.bench.verdicts import Gate, Measure, Standing, Verdict, passed, verdicts
from drumbeat.core.run import RunStatus


def verdict(limit: float, found: float | None) -> Verdict:
    return Verdict(kind="read", measure=Measure.P95, limit=limit, found=found)


@pytest.mark.parametrize(
    ("limit", "found", "standing"),
    [
        (10, 8.99, Standing.OK),
        (10, 9.0, Standing.NEAR),
        (10, 10.0, Standing.NEAR),
        (10, 10.01, Standing.OVER),
        (10, None, Standing.NOT_MEASURED),
        (0, 0.0, Standing.OK),
        (0, 0.001, Standing.OVER),
    ],
)
def test_a_figure_is_near_at_nine_tenths_and_over_beyond_its_limit(
    limit: float, found: float | None, standing: Standing
) -> None:
    assert verdict(limit, found).standing is standing


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

    assert {each.standing for each in found} == {Standing.NOT_MEASURED}


@pytest.mark.parametrize(
    ("status", "found", "gate"),
    [
        (RunStatus.COMPLETED, (), Gate.PASSED),
        (RunStatus.COMPLETED, (verdict(10, 9.5),), Gate.PASSED),
        (RunStatus.COMPLETED, (verdict(10, 9.5), verdict(10, 11)), Gate.OBJECTIVES_MISSED),
        (RunStatus.COMPLETED, (verdict(10, None),), Gate.OBJECTIVES_MISSED),
        (RunStatus.FAILED, (verdict(10, 1),), Gate.RUN_FAILED),
        (RunStatus.CANCELLED, (), Gate.RUN_FAILED),
    ],
)
def test_a_run_passes_when_it_completed_and_kept_every_limit(status: RunStatus, found: tuple[Verdict, ...], gate: Gate) -> None:
    assert passed(status, found) is gate
