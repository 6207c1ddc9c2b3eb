from dataclasses import replace
from typing import Any

import pytest

from bench.recorded import record, rich, second
from drumbeat.bench.model.plan import ALL_KINDS, LoadMode, Objective, QpsPlan, RunPlan
from drumbeat.bench.model.record import Measured, RunRecord, Second
from drumbeat.bench.model.verdict import ExitStatus, RunVerdict
from drumbeat.bench.model.view import RunEnding
from drumbeat.bench.results.availability import as_metrics, availability_of, corrected, outages
from drumbeat.bench.results.caveats import caveats
from drumbeat.bench.results.record import ended_record
from drumbeat.bench.results.report import content
from drumbeat.bench.results.report.csv import csv
from drumbeat.bench.results.report.junit import junit
from drumbeat.bench.results.run_verdict import judge_run
from drumbeat.core.histogram import Histogram
from drumbeat.core.run import Phase, Result, RunId, RunStatus

FIRST, LAST = 10, 14  #: of the seconds without service


def gone(plain: RunRecord, **changes: Any) -> RunRecord:
    """The same run with four seconds in which nothing succeeded; connections failed in them unless that differs."""
    lost: dict[str, Any] = {"operations": 0.0, "errors": 0.0, "failed_connects": 3, "histogram": b""} | changes
    seconds = tuple(replace(each, **lost) if FIRST <= each.offset < LAST else each for each in plain.timeline)
    return replace(plain, timeline=seconds)


def quiet(length: int = 16, **shape: Any) -> RunRecord:
    return record(length=length, warmup=5, spread=0.02, likeness=0.0, **shape)


def test_seconds_in_which_nothing_succeeded_are_without_service() -> None:
    found = availability_of(gone(quiet()))

    assert found is not None
    assert (found.seconds, found.without_service, found.percent, found.stretches) == (16, 4, 75.0, ((FIRST, LAST),))
    assert found.failed_connects == 12
    assert found.words == "no operation succeeded in 4 of 16 s (0:10–0:14)"


SECONDS: list[tuple[str, float, dict[str, Any], int]] = [
    ("nothing fails", 1000, {"operations": 900.0}, 0),
    ("every operation fails", 1000, {"operations": 50.0, "errors": 50.0}, 4),
    ("half of them fail", 1000, {"operations": 50.0, "errors": 25.0}, 0),
    ("the edge of an interval", 1000, {"operations": 12.0}, 4),
    ("a hung server", 1000, {"operations": 0.0, "failed_connects": 0}, 4),
    ("a slow load", 2, {"operations": 0.0, "failed_connects": 0}, 0),
    ("a slow load that fails", 2, {"operations": 1.0, "errors": 1.0}, 4),
    ("a slow load that cannot connect", 2, {"operations": 0.0}, 4),
]


@pytest.mark.parametrize(("qps", "changes", "missing"), [row[1:] for row in SECONDS], ids=[row[0] for row in SECONDS])
def test_a_second_is_without_service(qps: float, changes: dict[str, Any], missing: int) -> None:
    found = availability_of(gone(quiet(qps=qps), **changes))

    assert found is not None
    assert found.without_service == missing


def test_seconds_in_which_no_worker_ran_are_left_out() -> None:
    plain = quiet()
    silent = tuple(Second(offset=each.offset) if FIRST <= each.offset < LAST else each for each in plain.timeline)

    found = availability_of(replace(plain, timeline=silent))

    assert found is not None
    assert (found.seconds, found.without_service) == (12, 0)


@pytest.mark.parametrize(
    ("changes", "seconds", "missing"), [({}, 15, 0), ({"failed_connects": 1}, 16, 1), ({"covered": 0.95}, 16, 1)]
)
@pytest.mark.parametrize("place", [5, 20])
def test_a_first_or_last_second_that_was_measured_in_part_is_left_out(
    place: int, changes: dict[str, Any], seconds: int, missing: int
) -> None:
    plain = quiet()
    part: dict[str, Any] = {"operations": 9.0, "covered": 0.01} | changes
    edges = tuple(replace(each, **part) if each.offset == place else each for each in plain.timeline)

    found = availability_of(replace(plain, timeline=edges))

    assert found is not None
    assert (found.seconds, found.without_service) == (seconds, missing)


def test_operations_that_take_seconds_and_end_together_are_no_outage() -> None:
    """Fifty connections, each with operations of two seconds: every other second sees none of them end."""
    plain = quiet(qps=50, median_ms=2000)
    held = [replace(each, target=50) for each in plain.timeline]
    even = tuple(replace(each, operations=0.0, p50_ms=None, histogram=b"") if each.offset % 2 else each for each in held)
    found, put_right = availability_of(replace(plain, timeline=even)), corrected(replace(plain, timeline=even))

    assert found is not None
    assert found.without_service == 0
    assert put_right is not None
    assert put_right.p50_ms == pytest.approx(2000, rel=0.1)


def test_of_a_run_that_goes_on_seconds_that_are_only_not_told_yet_are_no_outage() -> None:
    served, last = quiet(length=9).timeline, quiet(length=12).timeline[-3:]
    silent = [replace(each, operations=0.0, errors=0.0) for each in last]

    assert outages(gone(quiet()).timeline) == [(FIRST, LAST)]
    assert outages([*served, *silent]) == []
    assert outages([*served, *(replace(each, failed_connects=1) for each in silent)]) == [(14, 17)]


@pytest.mark.parametrize(
    ("least", "gate"), [(None, ExitStatus.PASSED), (75.0, ExitStatus.PASSED), (99.9, ExitStatus.OBJECTIVES_MISSED)]
)
def test_availability_is_an_objective(least: float | None, gate: ExitStatus) -> None:
    plan = RunPlan(objectives={ALL_KINDS: Objective(p95_ms=1000, min_availability_pct=least)})

    assert judge_run(gone(quiet(plan=plan))).gate is gate


def test_a_short_record_knows_it_by_its_result() -> None:
    found = availability_of(gone(quiet()))
    row = Result(run_id=RunId("a run"), custom_metrics={"availability": as_metrics(found)})

    assert availability_of(replace(quiet(), timeline=(), results=(row,))) == found
    assert availability_of(replace(quiet(), timeline=())) is None


def test_an_outage_is_told_wherever_a_run_is_reported() -> None:
    run = gone(quiet())

    assert any("OUTAGE: no operation succeeded in 4 of 16 s" in each for each in caveats(run))
    assert ("availability", "75 %") in [(tile.label, tile.value) for tile in content.tiles(run)]
    marked = [line.rsplit(",", 2)[-2:] for line in csv(run).splitlines()[1:]]
    assert marked[FIRST:LAST] == [["3", "1"]] * 4
    assert marked[LAST] == ["0", "0"]
    assert not caveats(quiet())


def test_attempts_to_connect_that_failed_count_among_the_errors() -> None:
    assert Measured(operations=90, errors=5, failed_connects=10).error_rate == 0.15


def test_a_closed_loops_percentiles_are_corrected_for_what_was_not_sent() -> None:
    """Four seconds were lost beside sixteen that were measured, so a fifth of the users would have waited, up to 4 s."""
    run = gone(quiet(qps=40))
    raw, fair = run.whole.latency, corrected(run)

    assert fair is not None
    assert raw.p95_ms is not None
    assert raw.p99_ms is not None
    assert fair.p95_ms is not None
    assert fair.p99_ms is not None
    assert (raw.p99_ms < 100, 2800 < fair.p95_ms < 3200, 3600 < fair.p99_ms <= 4000) == (True, True, True)
    assert fair.p50_ms == pytest.approx(raw.p50_ms, rel=0.6)


def test_one_operation_that_hung_stands_for_those_it_held_up() -> None:
    """A connection sends every 10 ms: one of its operations took a second, so a hundred would have waited up to that long."""
    plain = replace(quiet(), timeline=tuple(second(n, phase=Phase.MEASUREMENT, qps=1000, median_ms=5) for n in range(10)))
    whole = Histogram()
    whole.record_all([5_000_000] * 9_900 + [1_000_000_000] * 10)
    run = replace(plain, totals={ALL_KINDS: replace(plain.whole, histogram=whole.to_bytes())})

    fair = corrected(run)

    assert fair is not None
    assert fair.count == pytest.approx(9_910 + 10 * 99, rel=0.01)
    assert fair.p95_ms == pytest.approx(450, rel=0.1)


def test_an_open_loop_and_a_search_have_nothing_to_correct() -> None:
    paced = RunPlan(load_mode=LoadMode.QPS, qps=QpsPlan(target_qps=1000))

    assert corrected(quiet(plan=paced)) is None
    assert corrected(rich()) is None


def test_a_run_without_latencies_has_nothing_to_correct() -> None:
    plain = quiet()

    assert corrected(replace(plain, totals={ALL_KINDS: replace(plain.whole, histogram=Histogram().to_bytes())})) is None


def test_the_verdict_a_row_keeps_counts_failed_connects_as_reports_do() -> None:
    plan = RunPlan(objectives={ALL_KINDS: Objective(max_error_pct=0.01)})
    known = gone(quiet(plan=plan))
    whole = Result(run_id=RunId("r"), worker_id=None, status=RunStatus.COMPLETED, operations=known.whole.operations)

    kept = ended_record(known, [whole], RunEnding(status=RunStatus.COMPLETED, completion_reason="DURATION", reason=""))

    assert kept.whole.failed_connects == 12
    assert judge_run(kept).verdict is RunVerdict.MISSED


def test_an_availability_just_below_its_limit_does_not_look_like_it() -> None:
    plan = RunPlan(objectives={ALL_KINDS: Objective(min_availability_pct=75.01)})

    table = content.objectives(gone(quiet(plan=plan)))

    assert table is not None
    assert [row[2:4] for row in table.rows] == [("75.01 %", "75 %")]
    assert "availability_pct ≥ 75.01" in junit(gone(quiet(plan=plan)))
