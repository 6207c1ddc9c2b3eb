"""What is reported of recorded operations is right: exact counts, percentiles within one percent, merges that lose nothing."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st

from drumbeat.bench.driver.records import FAILED, LOST, OK, Records, empty
from drumbeat.bench.driver.tally import LoadTally, buckets_of, count_into, latency_figures
from drumbeat.bench.model import Load, Operation, Statement
from drumbeat.core.histogram import Histogram, bucket_of

MILLISECOND = 1_000_000

LOAD = Load(
    name="two",
    operations=(
        Operation(kind="A", weight=50, statements=(Statement(sql="SELECT 1"),), reads=True),
        Operation(kind="B", weight=50, statements=(Statement(sql="SELECT 2"),)),
    ),
)


def records(durations: Sequence[int], *, kind: int = 0, late: int = 0, outcome: int = OK) -> Records:
    made = empty(len(durations))
    made["duration"], made["kind"], made["outcome"], made["start"] = durations, kind, outcome, late
    return made


@given(st.lists(st.integers(min_value=-5, max_value=2**43), max_size=50))
def test_many_durations_fall_in_the_buckets_each_would_alone(durations: list[int]) -> None:
    assert buckets_of(np.array(durations, dtype=np.int64)).tolist() == [bucket_of(each) for each in durations]


@given(st.lists(st.integers(min_value=0, max_value=10**12), max_size=100))
def test_counting_many_is_counting_each(durations: list[int]) -> None:
    at_once, one_by_one = Histogram(), Histogram()
    count_into(at_once, np.array(durations, dtype=np.int64))
    for each in durations:
        one_by_one.record(each)

    assert at_once == one_by_one


@pytest.mark.parametrize(
    ("shape", "durations"),
    [
        ("fixed", [20 * MILLISECOND] * 10_000),
        ("bimodal", [2 * MILLISECOND] * 9_000 + [80 * MILLISECOND] * 1_000),
        ("a stall of a second in each ten", [5 * MILLISECOND] * 9_980 + [1000 * MILLISECOND] * 20),
    ],
)
def test_percentiles_are_within_one_percent_of_the_truth(shape: str, durations: list[int]) -> None:
    tally = LoadTally(LOAD)
    tally.absorb(records(durations))

    found = latency_figures(tally.response)

    for percent in (50, 95, 99, 99.9):
        truth = np.percentile(durations, percent, method="inverted_cdf") / MILLISECOND
        assert found[f"p{percent:g}_ms"] == pytest.approx(truth, rel=0.01), shape


def test_what_was_never_sent_is_no_quicker_than_the_quickest_that_was() -> None:
    tally = LoadTally(LOAD)
    tally.absorb(records([2 * MILLISECOND, 3 * MILLISECOND]))

    tally.absorb_unsent(np.array([0, 0, 9, 9]) * MILLISECOND)

    assert tally.kinds[0].response.count == 4
    assert (tally.kinds[0].response.least, tally.kinds[0].response.greatest) == (2 * MILLISECOND, 9 * MILLISECOND)


def test_in_an_open_loop_a_stall_shows_in_response_time_as_theory_says() -> None:
    """A thousand a second for ten seconds, one stall of a second: those due in it wait for what is left of it."""
    due = np.arange(10_000) * MILLISECOND
    start = np.where((due >= 5_000 * MILLISECOND) & (due < 6_000 * MILLISECOND), 6_000 * MILLISECOND, due)
    made = records([MILLISECOND] * 10_000)
    made["due"], made["start"] = due, start
    tally = LoadTally(LOAD)
    tally.absorb(made)

    response, service = latency_figures(tally.response), latency_figures(tally.service)

    assert response["p99_ms"] == pytest.approx(901, rel=0.05)
    assert response["p95_ms"] == pytest.approx(501, rel=0.05)
    assert service["p99.9_ms"] == pytest.approx(1, rel=0.01)


def test_two_workers_merged_are_one_worker_over_the_same_operations() -> None:
    chance = np.random.default_rng(3)
    all_of_them = [records(chance.lognormal(14, 1, 5000).astype(int).tolist(), kind=kind) for kind in (0, 1, 0, 1)]
    all_of_them += [records([MILLISECOND] * 3, outcome=FAILED), records([MILLISECOND] * 4, outcome=FAILED)]
    whole, first, second = LoadTally(LOAD), LoadTally(LOAD), LoadTally(LOAD)
    for n, each in enumerate(all_of_them):
        whole.absorb(each)
        (first, second)[n % 2].absorb(each)

    first.merge(second)

    assert first.response == whole.response
    assert first.service == whole.service
    assert (first.operations, first.errors) == (whole.operations, whole.errors) == (20_007, 7)
    assert first.errors_by_state == whole.errors_by_state


def test_failed_operations_are_counted_and_their_latency_is_not() -> None:
    made = np.concatenate([records([MILLISECOND] * 99), records([9999 * MILLISECOND], outcome=FAILED)])
    made["sqlstate"][-1] = b"23505"
    tally = LoadTally(LOAD)
    tally.absorb(made)
    tally.absorb(records([1], outcome=LOST))

    assert (tally.operations, tally.errors) == (101, 2)
    assert tally.response.count == 99
    assert tally.errors_by_state == {(FAILED, "23505"): 1, (LOST, ""): 1}


def test_reads_and_kinds_are_told_apart() -> None:
    tally = LoadTally(LOAD)
    tally.absorb(np.concatenate([records([1] * 3, kind=0), records([1] * 5, kind=1)]))

    assert tally.reads == 3
    assert {name: kind.operations for name, kind in tally.by_kind().items()} == {"A": 3, "B": 5}


def test_one_percent_of_injected_errors_is_reported_as_exactly_that() -> None:
    made = records([MILLISECOND] * 100_000)
    made["outcome"][::100] = FAILED
    tally = LoadTally(LOAD)
    tally.absorb(made)

    assert (tally.operations, tally.errors) == (100_000, 1_000)
