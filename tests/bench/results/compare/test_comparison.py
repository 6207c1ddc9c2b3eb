from dataclasses import replace
from random import Random
from typing import Any

import pytest

from bench.recorded import noise, record, record_of, run, search
from drumbeat.bench.model.plan import LoadMode, RunPlan
from drumbeat.bench.model.record import RunRecord
from drumbeat.bench.results.compare import Comparison, FigureChange, compare, compared
from drumbeat.bench.results.compare.changes import ERRORS, P95, P99, QPS, Bounds, overall
from drumbeat.core.errors import InvalidInput
from drumbeat.core.run import Result, RunId, RunStatus
from thorough import some

SEEDS = range(some(100))


def changes(comparison: Comparison) -> dict[str, FigureChange]:
    return {delta.bounds.name: delta.change for delta in comparison.deltas}


@pytest.mark.parametrize(
    ("bounds", "by", "change"),
    [
        (QPS, 0.11, FigureChange.IMPROVED),
        (QPS, 0.09, FigureChange.STABLE),
        (QPS, -0.11, FigureChange.WARNING),
        (QPS, -0.21, FigureChange.REGRESSED),
        (P95, -0.21, FigureChange.IMPROVED),
        (P95, 0.21, FigureChange.WARNING),
        (P95, 0.41, FigureChange.REGRESSED),
        (P99, 0.45, FigureChange.WARNING),
        (ERRORS, -0.002, FigureChange.IMPROVED),
        (ERRORS, 0.009, FigureChange.STABLE),
        (ERRORS, 0.02, FigureChange.WARNING),
        (ERRORS, 0.06, FigureChange.REGRESSED),
    ],
)
def test_a_change_means_what_its_bounds_say_and_more_errors_are_worse(bounds: Bounds, by: float, change: FigureChange) -> None:
    assert bounds.change(by) is change


@pytest.mark.parametrize(
    ("found", "change"),
    [
        ([FigureChange.STABLE, FigureChange.IMPROVED, FigureChange.WARNING, FigureChange.REGRESSED], FigureChange.REGRESSED),
        ([FigureChange.INCONCLUSIVE, FigureChange.IMPROVED, FigureChange.WARNING], FigureChange.WARNING),
        ([FigureChange.STABLE, FigureChange.IMPROVED], FigureChange.IMPROVED),
        ([FigureChange.INCONCLUSIVE, FigureChange.STABLE], FigureChange.STABLE),
        ([FigureChange.INCONCLUSIVE], FigureChange.INCONCLUSIVE),
        ([], FigureChange.INCONCLUSIVE),
    ],
)
def test_the_worst_figure_decides(found: list[FigureChange], change: FigureChange) -> None:
    assert overall(found) is change


def test_two_runs_of_the_same_are_called_different_in_at_most_one_of_twenty() -> None:
    called = sum(
        any(delta.is_significant for delta in compared(record(seed=seed), record(seed=seed + 1000)).deltas) for seed in SEEDS
    )

    assert called <= 0.05 * len(SEEDS)


def test_fifteen_percent_less_throughput_is_found_in_at_least_nineteen_of_twenty() -> None:
    found = [compared(record(seed=seed, length=180), record(seed=seed + 1000, length=180, qps=850)) for seed in SEEDS]

    assert sum(comparison.deltas[0].is_significant is True for comparison in found) >= 0.95 * len(SEEDS)


def short(rng: Random, level: float) -> RunRecord:
    """Thirty seconds on a quiet machine: they scatter by 3 %, half of it shared with the second before, and runs by 1 %."""
    level *= 1 + rng.gauss(0, 0.01)
    return record_of([(level * factor, 5000 / (level * factor)) for factor in noise(rng, 30, 0.03, 0.5)])


def test_of_forty_pairs_of_equal_short_runs_at_most_one_raises_an_alarm_and_ten_percent_less_is_found_in_four_of_five() -> None:
    rng, worse = Random(19), (FigureChange.WARNING, FigureChange.REGRESSED)
    equal = [compared(short(rng, 1000), short(rng, 1000)).change for _ in range(40)]
    slower = [compared(short(rng, 1000), short(rng, 900)).change for _ in range(40)]

    assert sum(change in worse for change in equal) <= 1
    assert sum(change in worse for change in slower) >= 32


def test_a_loss_that_is_shown_and_may_be_as_large_as_the_bound_is_a_warning() -> None:
    steady: dict[str, Any] = {"length": 30, "spread": 0.02, "likeness": 0.0}

    (throughput, *_) = compared(record(seed=1, **steady), record(seed=2, **steady, qps=920)).deltas

    assert throughput.relative == pytest.approx(-0.08, abs=0.015)
    assert throughput.shift is not None
    assert throughput.shift.low < -100 < throughput.shift.high < 0
    assert throughput.change is FigureChange.WARNING


@pytest.mark.parametrize(
    ("after", "change"),
    [
        ({}, FigureChange.STABLE),
        ({"qps": 700}, FigureChange.REGRESSED),
        ({"qps": 860}, FigureChange.WARNING),
        ({"qps": 1200}, FigureChange.IMPROVED),
        ({"median_ms": 8}, FigureChange.REGRESSED),
        ({"median_ms": 3}, FigureChange.IMPROVED),
        ({"error_rate": 0.02}, FigureChange.WARNING),
        ({"error_rate": 0.30}, FigureChange.REGRESSED),
    ],
)
def test_a_run_is_judged_by_throughput_latency_and_errors(after: dict[str, Any], change: FigureChange) -> None:
    steady: dict[str, Any] = {"length": 300, "spread": 0.03, "likeness": 0.3}

    assert compared(record(seed=1, **steady), record(seed=2, **steady, **after)).change is change


def test_a_run_full_of_errors_is_no_stable_run_even_if_they_came_in_one_burst() -> None:
    steady = record(seed=1)
    burst = tuple(replace(s, errors=s.operations) if 60 <= s.offset < 75 else s for s in steady.timeline)
    after = replace(record(seed=1), timeline=burst)
    after = replace(after, totals={"": replace(after.whole, errors=after.whole.operations // 8)})

    comparison = compared(steady, after)

    assert changes(comparison)["error_rate"] is FigureChange.REGRESSED
    assert comparison.change is FigureChange.REGRESSED


def test_no_difference_is_said_to_be_not_shown_and_what_could_hide_is_told() -> None:
    restless: dict[str, Any] = {"length": 60, "spread": 0.25, "likeness": 0.8}

    comparison = compared(record("A", seed=3, **restless), record("B", seed=4, **restless))

    assert comparison.deltas[0].words == "no significant difference"
    assert any("operations/s" in warning and "cannot be ruled out" in warning for warning in comparison.warnings)


def test_what_looks_much_worse_and_cannot_be_shown_is_no_pass() -> None:
    """Of short runs at a fifth of the throughput most are called regressed, and none stable."""
    found = [compared(record(seed=seed, length=30), record(seed=seed + 1000, length=30, qps=200)) for seed in SEEDS]

    assert {comparison.change for comparison in found} <= {FigureChange.REGRESSED, FigureChange.INCONCLUSIVE}
    assert sum(comparison.change is FigureChange.REGRESSED for comparison in found) >= 0.6 * len(SEEDS)
    unsure = [comparison.reason or "" for comparison in found if comparison.change is FigureChange.INCONCLUSIVE]
    assert all("operations/s" in reason and "measure for longer" in reason for reason in unsure)


def test_runs_too_short_to_say_are_inconclusive() -> None:
    comparison = compared(record(length=20), record(length=20, qps=100))

    assert comparison.change is FigureChange.INCONCLUSIVE
    assert {delta.shift for delta in comparison.deltas} == {None}


def test_a_run_that_measured_nothing_is_inconclusive() -> None:
    nothing = RunRecord(run=run("failed", RunStatus.FAILED), plan=RunPlan())

    comparison = compared(record(), nothing)

    assert comparison.change is FigureChange.INCONCLUSIVE
    assert "failed: it is FAILED, not COMPLETED" in comparison.warnings


def test_runs_of_different_modes_or_targets_are_not_compared() -> None:
    other = replace(record(), plan=RunPlan(load_mode=LoadMode.QPS))
    elsewhere = replace(record(), run=run(config={"target": {"url": "mysql://u@h/d"}}))

    assert compared(record(), other).change is FigureChange.INCONCLUSIVE
    assert compared(record(), elsewhere).change is FigureChange.INCONCLUSIVE
    assert "targets are of different kinds" in compared(record(), elsewhere).similarity.gates[0]


@pytest.mark.parametrize("number", [0, 1, 6])
def test_two_to_five_runs_are_compared(number: int) -> None:
    with pytest.raises(InvalidInput, match="expected 2 to 5 runs"):
        compare([record()] * number)


def test_the_first_run_is_the_reference_of_all_others() -> None:
    runs = [record(name, seed) for seed, name in enumerate("abcde")]

    assert [(each.before.run.name, each.after.run.name) for each in compare(runs)] == [("a", name) for name in "bcde"]


def test_different_durations_are_warned_of() -> None:
    assert compared(record(length=120), record(length=60)).warnings[0] == (
        "the measurements have different lengths: 120 s and 60 s"
    )
    assert not any("different times" in each for each in compared(record(length=120), record(length=115)).warnings)


def test_latencies_of_another_shape_differ() -> None:
    assert compared(record(), record(median_ms=20)).latencies_differ
    assert not compared(record(seed=1), record(seed=1)).latencies_differ


@pytest.mark.parametrize(
    ("after", "change"),
    [
        ({}, FigureChange.STABLE),
        ({"best": 50}, FigureChange.WARNING),
        ({"best": 40}, FigureChange.REGRESSED),
        ({"best": 80}, FigureChange.IMPROVED),
        ({"qps": 4300}, FigureChange.WARNING),
    ],
)
def test_searches_are_compared_by_the_level_they_found(after: dict[str, Any], change: FigureChange) -> None:
    assert compared(search(), search(**after)).change is change


def test_a_search_that_found_no_stable_level_has_regressed() -> None:
    nothing = replace(search(), results=(Result(run_id=RunId("s"), find_max_result={"best_connections": None}),))

    assert changes(compared(search(), nothing))["best_level"] is FigureChange.REGRESSED
